"""MODEL_DIR -> a folder that onnxruntime runs without torch, checked against torch before it is there."""

import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from bertvision.encoder.encode import StateBatch, encode, read_states
from bertvision.encoder.load import quiet_transformers
from bertvision.errors import EncoderError, FolderError, MissingExtraError, SettingsError
from bertvision.files import check_folder, given_folder, sha256_of, write_json, write_text
from bertvision.heads.config import reads_last_alone
from bertvision.heads.head import score_columns
from bertvision.hub import CARD
from bertvision.manifest import write_manifest
from bertvision.model_config import CALIBRATION, CONFIG, Calibration, UseConfig
from bertvision.model_folder import Model
from bertvision.serving.onnx_model import GRAPH, INPUTS, OnnxConfig, open_session, run_graph
from bertvision.serving.tokenizer import FileTokenizer, read_tokenizer
from bertvision.serving.torch_model import open_model, saved_config, torch_engine
from bertvision.training.device import choose_compute
from bertvision.windows.batches import WindowBatch
from bertvision.windows.cut import read_layouts
from bertvision.windows.plan import PaddedRows
from bertvision.windows.tokens import tokenise

# From 23 on attention is one operator, which onnxruntime runs as one. Before, it was written out: products, a softmax
# and a search for NaNs (of rows without a token: there are none), each a pass over [batch, head, token, token].
OPSET = 23
TRACED = (2, 16)  # rows and tokens of the batch that is traced: any that are not 1, which would stay 1
LARGEST = 2 * 1024**3 - 64 * 1024**2  # bytes of weights: a protobuf holds 2 GB, the graph itself included
SIZES = 6  # random batches that torch and ONNX are compared on
MOST_ROWS = 8
PACKAGES = ("onnx", "onnxscript")
TOLERANCE = 1e-4  # between torch and ONNX in float32, of the largest logit where that is above 1
MOST_ROUNDED = 0.75  # that int8 may change a logit by, of the largest one; MiniLM's change by 0.2, MPNet's by 0.5
# Letters with marks and ligatures, wide and blank characters, and what is no text at all.
PROBES = ["Who built the weir?", "naïve Café (1887) —  two\tblanks,\n東京 ﬁn don't U.S. e\u0301", "\u200b", ""]


class Difference(NamedTuple):
    """The largest difference between two models' logits, and the batch, rows x tokens, that it was found on."""

    largest: float
    scale: float  # of that batch's logits: the largest of them
    rows: int
    tokens: int

    @property
    def bound(self) -> float:
        """Return how large it may be: float32 rounds a number by a share of it."""
        return TOLERANCE * max(1.0, self.scale)


class Graph(nn.Module):
    """What is traced: ids, mask and segments in, logits out."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.encoder, self.head = model.encoder.model, model.head  # as parts of this module they are moved with it
        self._model = model
        self._reads_last = (
            model.head.pooling is None and model.head.places is None and reads_last_alone(model.config.head)
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Return the logits of tokens or rows."""
        unused = input_ids[:, 0]
        rows = np.zeros(0, np.int64)
        batch = WindowBatch(input_ids, attention_mask.bool(), token_type_ids, unused, unused, unused, rows)
        logits: Tensor = self.head(*self._states(batch).seen)
        return logits

    def _states(self, batch: WindowBatch) -> StateBatch:
        if self._reads_last:
            return StateBatch(encode(self._model.encoder, batch, last_only=True), batch)
        return read_states(self._model.encoder, batch, pooling=self.head.pooling)


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
                opset_version=OPSET,
                verbose=False,
            )
            assert program is not None
            program.save(str(path), external_data=False)
    except Exception as error:  # torch's exporter lets errors of any kind through
        raise _refusal(model, error) from None


def compare_graph(model: Model, path: Path) -> Difference:
    """Compare a graph with the model that it was made of, on batches of random sizes; padding does not count."""
    graph, session = Graph(model).train(False), open_session(path)
    random = np.random.default_rng(0)
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
        of_tokens = apart.ndim > padded.mask.ndim
        apart, expected = (each[padded.mask] if of_tokens else each for each in (apart, expected))
        found.append(Difference(float(apart.max()), float(np.abs(expected).max()), rows, tokens))
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


class Exported(NamedTuple):
    """What was written, and how far its logits were from torch's on random batches."""

    folder: Path
    bytes: int
    float32: Difference
    int8: Difference | None

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        int8 = None if self.int8 is None else self.int8._asdict()
        return {**self._asdict(), "folder": str(self.folder), "float32": self.float32._asdict(), "int8": int8}

    def as_lines(self) -> list[str]:
        """Return how far its logits were from torch's."""
        lines = [f"On random batches its logits in float32 were at most {self.float32.largest:.1e} from PyTorch's."]
        if self.int8 is not None:
            lines.append(
                f"Rounding products to int8 then changed them by up to {self.int8.largest:.2g}; "
                "`make bench NAME=inference` in the repository measures what it costs."
            )
        return lines


def export_onnx(model: Path, out: Path, *, int8: bool = False, allow_outside: bool = False) -> Exported:
    """Write a model as one graph with all that `bertvision.load` needs; nothing is left at `out` where it is refused.

    With `int8` the weights of products are rounded to whole numbers, and activations while it runs.
    """
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "onnx")
    if check_folder(out).is_dir() and any(out.iterdir()):
        raise FolderError(f"{out}: is not empty; choose a new folder")
    served = open_model(model, choose_compute("cpu", "float32"), allow_outside=allow_outside)
    engine = torch_engine(served)
    engine.model.head.train(False)
    with given_folder(out) as beside:
        found = _write_checked(engine.model, beside / GRAPH, int8)
        _write_tokenizer(engine.model.encoder.tokenizer, beside)
        write_json(
            beside / CONFIG,
            onnx_config(engine.model, served.calibration, beside / GRAPH, int8=int8).model_dump(mode="json"),
        )
        write_json(beside / CALIBRATION, served.calibration.model_dump(mode="json"))
        exported = Exported(out, (beside / GRAPH).stat().st_size, *found)
        write_text(beside / CARD, "\n".join([engine.card(served.calibration), *_paragraph(exported)]))
        write_manifest(beside, leave_out=[GRAPH])  # whose hash is in its config
    return exported


def _write_checked(model: Model, path: Path, int8: bool) -> tuple[Difference, Difference | None]:
    write_graph(model, path)
    found = compare_graph(model, path)
    if not found.largest <= found.bound:
        raise SettingsError(
            f"the exported logits differ from PyTorch's by {found.largest:.2g} on {found.rows} x {found.tokens} tokens "
            f"(at most {found.bound:.2g} is right); nothing was written, export another head than "
            f"{model.config.head.name!r}, and please report this"
        )
    if not int8:
        return found, None
    _round_weights(path)
    rounded = compare_graph(model, path)
    if not rounded.largest <= MOST_ROUNDED * rounded.scale:
        raise SettingsError(
            f"int8 changes this model's logits by up to {rounded.largest:.2g} (largest: {rounded.scale:.2g}): it would "
            "answer otherwise; nothing was written, save it without `int8`"
        )
    return found, rounded


def _round_weights(path: Path) -> None:
    """Replace a graph by one with int8 products."""
    from onnx import load, save
    from onnxruntime.quantization import QuantType, quantize_dynamic

    whole = path.with_name(f"whole-{path.name}")
    path.rename(whole)
    # The last product gives the logits themselves: its weights are few and its rounding would be seen in every answer.
    # Attention is excluded because quantize_dynamic takes ONNX's operator for one of onnxruntime's own of that name.
    graph = (model := load(whole, load_external_data=False)).graph
    last = [node.name for node in graph.node if node.op_type in ("MatMul", "Gemm")][-1]
    attention = [node.name for node in graph.node if node.op_type == "Attention"]
    # It turns Gemm, which ends the graph where rows are scored, into MatMul of this name with transposed weights, and
    # stumbles over the shapes that they had.
    weights = {each.name for each in graph.initializer}
    shapes = [each for each in graph.value_info if each.name not in weights]
    del graph.value_info[:]
    graph.value_info.extend(shapes)
    save(model, whole)
    with quiet():
        quantize_dynamic(
            whole,
            path,
            per_channel=True,
            weight_type=QuantType.QInt8,  # twice as fast as unsigned ones where a CPU has VNNI; see `open_session`
            nodes_to_exclude=[last, f"{last}_MatMul", *attention],
            reduce_range=False,
        )
    whole.unlink()


def _write_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write the tokenizer; refuse one that is another when it is read again."""
    with quiet_transformers():
        tokenizer.save_pretrained(folder)
    if _cuts(read_tokenizer(folder)) != _cuts(tokenizer):
        raise EncoderError("the encoder's tokenizer cuts texts differently once it is saved; it cannot be exported")


def _cuts(tokenizer: PreTrainedTokenizerBase | FileTokenizer) -> list[Any]:
    """Return all that features ask of a tokenizer, on a few texts."""
    arrays = [part for layout in read_layouts(tokenizer) for part in layout]
    arrays += [part for pair in tokenise(tokenizer, PROBES) for part in pair]
    return [tokenizer.pad_token_id, tokenizer.unk_token_id, *(array.tolist() for array in arrays)]


def onnx_config(model: Model, calibration: Calibration, graph: Path, *, int8: bool = False) -> OnnxConfig:
    """Return all that is needed to use a graph of a model."""
    own = saved_config(model.config, calibration)
    return OnnxConfig(
        **{name: getattr(own, name) for name in UseConfig.model_fields},
        head=own.head.name,
        columns=score_columns(model.head),
        sha256=sha256_of(graph),
        int8=int8,
    )


def _paragraph(exported: Exported) -> list[str]:
    run = f"`{GRAPH}` holds encoder and head; `bertvision.load` runs it with onnxruntime, without importing torch."
    return ["## ONNX", "", run, *exported.as_lines(), ""]
