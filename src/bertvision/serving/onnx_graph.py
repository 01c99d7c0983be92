"""Encoder + head -> one ONNX graph with dynamic batch and length, and how far its logits are from torch's."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from bertvision.encoder.encode import StateBatch, encode, read_states
from bertvision.errors import SettingsError
from bertvision.heads.build import reads_last_alone
from bertvision.model_folder import Model
from bertvision.serving.onnx_model import INPUTS, open_session, run_graph
from bertvision.windows.batches import WindowBatch
from bertvision.windows.padding import PaddedRows

TRACED = (2, 16)  # rows and tokens of the batch that is traced: any that are not 1, which would stay 1
LARGEST = 2 * 1024**3 - 64 * 1024**2  # bytes of weights: a protobuf holds 2 GB, the graph itself included
SIZES = 6  # random batches that torch and ONNX are compared on
MOST_ROWS = 8


class Difference(NamedTuple):
    """The largest difference between two models' logits, and the batch, rows x tokens, that it was found on."""

    largest: float
    rows: int
    tokens: int


class Graph(nn.Module):
    """What is traced: ids, mask and segments in, logits out."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.encoder, self.head = model.encoder.model, model.head  # as parts of this module they are moved with it
        self._model = model
        self._reads_last = not model.head.cls and model.head.layers is None and reads_last_alone(model.config.head)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Give the logits of tokens or rows."""
        unused = input_ids[:, 0]
        rows = np.zeros(0, np.int64)
        batch = WindowBatch(input_ids, attention_mask.bool(), token_type_ids, unused, unused, unused, rows)
        logits: Tensor = self.head(*self._states(batch).seen)
        return logits

    def _states(self, batch: WindowBatch) -> StateBatch:
        if self._reads_last:
            return StateBatch(encode(self._model.encoder, batch, last_only=True), batch)
        return read_states(self._model.encoder, batch, cls=self.head.cls)


def write_graph(model: Model, path: Path) -> None:
    """Write a model as one file; refuse a head that ONNX cannot express with any batch and length."""
    _check_size(model)
    graph = Graph(model).train(False)
    ids, mask, segments = _draw(model, *TRACED, np.random.default_rng(0))
    given = (torch.from_numpy(ids), torch.from_numpy(mask.astype(np.int64)), torch.from_numpy(segments))
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    try:
        with quiet(), torch.no_grad():
            program = torch.onnx.export(
                graph,
                given,
                dynamo=True,
                input_names=INPUTS,
                output_names=["logits"],
                dynamic_shapes=(axes, axes, axes),
                verbose=False,
            )
            assert program is not None
            program.save(str(path), external_data=False)
    except Exception as error:  # torch's exporter lets errors of any kind through
        raise _refusal(model, error) from None


def compare_graph(model: Model, path: Path, seed: int = 0) -> Difference:
    """Compare a graph with the model that it was made of, on batches of random sizes; padding does not count."""
    graph, session = Graph(model).train(False), open_session(path)
    random = np.random.default_rng(seed)
    longest = min(model.encoder.max_length, max(model.config.windows.max_length, 2 * TRACED[1]))
    sizes = [(1, 1), (1, longest), (MOST_ROWS, 2 * TRACED[1])]
    sizes += [(int(random.integers(1, MOST_ROWS + 1)), int(random.integers(1, longest + 1))) for _ in range(SIZES)]
    found = []
    for rows, tokens in sizes:
        padded = _draw(model, rows, tokens, random)
        with torch.no_grad():
            ids, mask, segments = map(torch.from_numpy, padded)
            expected = graph(ids, mask.long(), segments).numpy()
        try:
            apart = np.abs(run_graph(session, *padded) - expected)
        except Exception as error:  # onnxruntime's have no common kind; a trace may hold for one length alone
            raise _refusal(model, error) from None
        apart = apart[padded.mask] if apart.ndim > padded.mask.ndim else apart
        found.append(Difference(float(apart.max()), rows, tokens))
    return max(found, key=lambda each: np.inf if np.isnan(each.largest) else each.largest)


def _refusal(model: Model, error: Exception) -> SettingsError:
    reason = " ".join(str(error.__cause__ or error).split())[:160]  # torch wraps what happened in advice
    return SettingsError(
        f"head {model.config.head.name!r} cannot be exported to ONNX ({type(error).__name__}: {reason}); choose "
        "another head, such as adapter_386_shared_skip"
    )


def _draw(model: Model, rows: int, tokens: int, random: np.random.Generator) -> PaddedRows:
    """Draw tokens for rows of random lengths; the first row is as long as asked for."""
    lengths = np.array([tokens, *random.integers(1, tokens + 1, rows - 1)])
    mask = np.arange(tokens) < lengths[:, None]
    drawn = random.integers(0, model.encoder.model.config.vocab_size, (rows, tokens))
    second_at = random.integers(0, lengths + 1)
    segments = (np.arange(tokens) >= second_at[:, None]) & mask
    return PaddedRows(np.where(mask, drawn, model.encoder.tokenizer.pad_token_id), mask, segments.astype(np.int64))


def _check_size(model: Model) -> None:
    modules = (model.encoder.model, model.head)
    size = sum(weight.numel() * weight.element_size() for module in modules for weight in module.parameters())
    if size > LARGEST:
        raise SettingsError(f"the model has {size / 1024**3:.1f} GiB of weights, and one ONNX file holds less than 2")


@contextmanager
def quiet() -> Iterator[None]:
    """Keep out what exporters say of packages that are not needed here, and of graphs that they give up."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
