"""Runs the frozen encoder on packed tokens, in batches of one shape that a GPU replays, for heads that score tokens.

Small encoders are told what to do by the host more slowly than a GPU does it, and padding is computed for nothing.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from bertvision.encoder.encode import PackedStates, encode_packed
from bertvision.encoder.load import Encoder
from bertvision.encoder.packed import can_pack
from bertvision.shapes import LayerStates
from bertvision.states.live import plan_of
from bertvision.training.device import Compute, StepGraphs
from bertvision.windows.batches import collate_to
from bertvision.windows.packing import BatchShape, Packing, pack, packed_shape
from bertvision.windows.padding import Rows, lengths_of
from bertvision.windows.step_plan import BatchConfig, EncoderBatch
from bertvision.windows.window import Window

ROWS_MULTIPLE, TOKENS_MULTIPLE = 32, 512  # shapes are rounded up to these, so that those of most epochs are the same


def packs_states(encoder: Encoder, compute: Compute) -> bool:
    """Return whether packing is possible and pays."""
    return compute.has_packed_attention and can_pack(encoder.model)


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
