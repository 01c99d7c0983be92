"""Runs the frozen encoder each time: no states on disk, none read from it.

On a GPU it runs on packed tokens for heads that score tokens, in batches of one shape that are replayed: small encoders
are told what to do by the host more slowly than a GPU does it, and padding is computed for nothing.
"""

import copy
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from bertvision.encoder.encode import PackedStates, Read, StateBatch, encode_packed, read_states
from bertvision.encoder.load import Encoder
from bertvision.encoder.packed import can_pack
from bertvision.encoder.tuning.freezing import quiet_bottom
from bertvision.model_config import Pooling
from bertvision.shapes import LayerStates
from bertvision.training.device import Compute, StepGraphs
from bertvision.windows.batches import WindowBatch, collate, collate_to
from bertvision.windows.packing import BatchShape, Packing, pack, packed_shape
from bertvision.windows.plan import (
    BatchConfig,
    EncoderBatch,
    Rows,
    StepPlan,
    lengths_of,
    loss_weights,
    plan_in_order_of_length,
)
from bertvision.windows.window import Window

ROWS_MULTIPLE, TOKENS_MULTIPLE = 32, 512  # shapes are rounded up to these, so that those of most epochs are the same


class LiveStates:
    """The states of windows under a frozen encoder (see `encoder.encode.freeze`), shuffled in each epoch.

    With a `states_batch` the encoder runs on batches of that size, and heads step on parts of them of size `batch`.
    `pooling` gives one state per layer (`encode_pooled`); groups of `group` neighbours are never separated.
    """

    def __init__(
        self,
        encoder: Encoder,
        windows: Sequence[Window],
        batch: BatchConfig,
        seed: int,
        compute: Compute,
        *,
        states_batch: BatchConfig | None = None,
        layers: tuple[int, ...] | None = None,
        pooling: Pooling | None = None,
        group: int = 1,
    ) -> None:
        self._encoder, self._windows, self._compute = encoder, windows, compute
        self._layers, self._pooling = layers, pooling
        self._plan = plan_of(windows, batch, seed, states_batch, group, compute)

    def num_steps(self, epoch: int) -> int:
        """Count the steps of an epoch."""
        return self._plan.num_steps(epoch)

    def epoch(self, number: int, first_step: int = 0) -> Iterator[StateBatch]:
        """Return the steps of one epoch, from `first_step` on."""
        for planned in self._plan.epoch(number, first_step):
            batch = states_of(
                self._encoder, self._windows, planned.rows, self._compute, layers=self._layers, pooling=self._pooling
            )
            yield from _steps(batch, planned)

    def whole(self) -> "LiveStates":
        """Return the same source for a process that needs all windows of every step."""
        whole = copy.copy(self)
        whole._plan = self._plan.whole()
        return whole


def plan_of(
    windows: Sequence[Window],
    batch: BatchConfig,
    seed: int,
    states_batch: BatchConfig | None,
    group: int,
    compute: Compute,
) -> StepPlan:
    """Plan the steps of a source: those of all windows, or a process's part of each."""
    part = compute.processes.part
    weights = loss_weights(windows) if part.count > 1 else None
    return StepPlan(lengths_of(windows), batch, seed, states_batch, group, part, weights)


def packs_states(encoder: Encoder, compute: Compute) -> bool:
    """Return whether packing is possible and pays."""
    return compute.has_packed_attention and can_pack(encoder.model)


class PackedLiveStates:
    """The states of `LiveStates`, step for step, of packed tokens."""

    def __init__(
        self,
        encoder: Encoder,
        windows: Sequence[Window],
        batch: BatchConfig,
        seed: int,
        compute: Compute,
        *,
        states_batch: BatchConfig | None = None,
        layers: tuple[int, ...] | None = None,
    ) -> None:
        self._encoder = PackedEncoder(encoder, windows, compute, layers)
        self._windows, self._lengths, self._device = windows, lengths_of(windows), compute.device
        self._pad_id = encoder.tokenizer.pad_token_id
        self._plan = plan_of(windows, batch, seed, states_batch, 1, compute)

    def num_steps(self, epoch: int) -> int:
        """Count the steps of an epoch."""
        return self._plan.num_steps(epoch)

    def epoch(self, number: int, first_step: int = 0) -> Iterator[PackedStates]:
        """Return the steps of one epoch, from `first_step` on."""
        whole = self._plan.epoch(number)
        shape = self._rounded(packed_shape(self._lengths, [rows for planned in whole for rows in planned.steps]))
        # The last step of a batch reads as many tokens as any other, own or not: so many more have to be there.
        assert shape.tokens is not None
        tokens = max(self._starts(planned)[-1] + shape.tokens for planned in whole)
        rows = max(len(planned.rows) for planned in whole)
        of_batches = self._rounded(BatchShape(rows, shape.width, tokens))
        for planned in self._plan.epoch(number, first_step):
            states = self._encoder.states(planned.rows, of_batches)
            starts = self._starts(planned)
            for number in range(planned.done, len(planned.steps)):
                start, step, share = starts[number], planned.steps[number], planned.share_of(number)
                windows = collate_to(self._windows, step, self._pad_id, shape, len(step))._replace(share=share)
                windows = windows.to(self._device)
                yield PackedStates(states[:, :, start : start + shape.tokens], windows)

    def _starts(self, planned: EncoderBatch) -> list[int]:
        """Return where the tokens of each step begin among those of the encoder's batch."""
        tokens = [int(self._lengths[rows].sum()) for rows in planned.steps]
        return [0, *np.cumsum(tokens)[:-1].tolist()]

    def _rounded(self, shape: BatchShape) -> BatchShape:
        assert shape.tokens is not None
        rows, tokens = -(-shape.rows // ROWS_MULTIPLE), -(-shape.tokens // TOKENS_MULTIPLE)
        return BatchShape(rows * ROWS_MULTIPLE, int(self._lengths.max()), tokens * TOKENS_MULTIPLE)


class PackedEncoder:
    """A frozen encoder that runs on packed windows, from the fourth batch of a shape on as one CUDA graph."""

    def __init__(
        self, encoder: Encoder, windows: Sequence[Window], compute: Compute, layers: tuple[int, ...] | None = None
    ) -> None:
        self._encoder, self._windows, self._compute, self._layers = encoder, windows, compute, layers
        self._graphs = StepGraphs(compute.device) if compute.device.type == "cuda" else None

    def states(self, rows: Rows, shape: BatchShape) -> LayerStates:
        """Return the states of some windows' tokens, one after the other, and of what fills them up to the shape."""
        chosen = [self._windows[row] for row in rows]
        packing = pack(chosen, shape, self._encoder.tokenizer.pad_token_id).to(self._compute.device)
        run = partial(self._run, width=shape.width)
        return run([packing]) if self._graphs is None else self._graphs.run(run, [packing])

    def _run(self, packings: Sequence[Packing], *, width: int) -> Tensor:
        with torch.no_grad():
            return encode_packed(self._encoder, packings[0], width, layers=self._layers)


def states_in_order_of_length(
    encoder: Encoder,
    windows: Sequence[Window],
    tokens: int,
    compute: Compute,
    *,
    layers: tuple[int, ...] | None = None,
    pooling: Pooling | None = None,
) -> Iterator[StateBatch]:
    """Return every window's states once, in large batches of equal length, for prediction.

    Of several processes each has some of the batches.
    """
    for rows in compute.processes.own(plan_in_order_of_length(lengths_of(windows), tokens)):
        yield states_of(encoder, windows, rows, compute, layers=layers, pooling=pooling)


def outputs_in_order_of_length(
    encoder: Encoder, read: Read, windows: Sequence[Window], tokens: int, compute: Compute
) -> Iterator[StateBatch]:
    """Do the same with an encoder that is in training: return what an output layer sees of every window."""
    encoder.model.train(False)
    for rows in compute.processes.own(plan_in_order_of_length(lengths_of(windows), tokens)):
        batch = collate(windows, rows, encoder.tokenizer.pad_token_id).to(compute.device)
        with torch.no_grad(), compute.autocast():
            output = read(encoder, batch)
        yield output


class KeptBatches:
    """Batches of states that are asked for again and again, such as dev's: kept from the first time on, if they fit."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._kept: dict[Pooling | None, list[StateBatch]] = {}

    def through(self, pooling: Pooling | None, batches: Iterable[StateBatch]) -> Iterator[StateBatch]:
        """Return the batches that were kept, or those given, which are only then computed."""
        if pooling in self._kept:
            yield from self._kept[pooling]
            return
        kept: list[StateBatch] = []
        for batch in batches:
            self._left -= batch.states.nbytes
            if self._left >= 0:
                kept.append(batch)
            yield batch
        if self._left >= 0:
            self._kept[pooling] = kept


def states_of(
    encoder: Encoder,
    windows: Sequence[Window],
    rows: Rows,
    compute: Compute,
    *,
    layers: tuple[int, ...] | None = None,
    pooling: Pooling | None = None,
) -> StateBatch:
    """Run the frozen encoder on some windows."""
    batch = collate(windows, rows, encoder.tokenizer.pad_token_id).to(compute.device)
    with torch.no_grad():
        return read_states(encoder, batch, layers=layers, pooling=pooling)


def _steps(batch: StateBatch, planned: EncoderBatch) -> Iterator[StateBatch]:
    first = 0
    for number, rows in enumerate(planned.steps):
        if number >= planned.done:
            yield cast(StateBatch, batch.part(first, first + len(rows)).with_share(planned.share_of(number)))
        first += len(rows)


def read_quietly(read: Read, first: int) -> Read:
    """Return a way to read an encoder whose frozen bottom runs without dropout."""

    def read_live(encoder: Encoder, batch: WindowBatch) -> StateBatch:
        quiet_bottom(encoder.model, first)
        return read(encoder, batch)

    return read_live
