"""Reading an encoder in training whose bottom is frozen: it runs each time, or its output is kept and it never does."""

from collections.abc import Sequence

import torch

from bertvision.encoder.encode import encode
from bertvision.encoder.finetune import Read
from bertvision.encoder.load import Encoder
from bertvision.encoder.states import StateBatch
from bertvision.encoder.tuning.frozen_blocks import quiet_bottom, starting_at, state_entering
from bertvision.states.blocks import BlockStore
from bertvision.states.buffers import Buffers
from bertvision.training.device import Compute
from bertvision.windows.batches import Rows, WindowBatch, collate
from bertvision.windows.window import Window


def bottom_states_of(
    encoder: Encoder, windows: Sequence[Window], rows: Rows, compute: Compute, first: int
) -> StateBatch:
    """Run what lies below a block on some windows, in the number format of training: one state, which enters it."""
    batch = collate(windows, rows, encoder.tokenizer.pad_token_id).to(compute.device)
    quiet_bottom(encoder.model, first)
    with torch.no_grad(), compute.autocast():
        state = state_entering(encoder.model, first, lambda: encode(encoder, batch, last_only=True))
    return StateBatch(state.unsqueeze(1), batch)


def read_quietly(read: Read, first: int) -> Read:
    """Give a way to read an encoder whose bottom runs each time, without dropout."""

    def read_live(encoder: Encoder, batch: WindowBatch) -> StateBatch:
        quiet_bottom(encoder.model, first)
        return read(encoder, batch)

    return read_live


class KeptBottom:
    """A way to read an encoder whose bottom never runs: the blocks above it start from its kept output."""

    def __init__(self, store: BlockStore, read: Read, first: int, compute: Compute) -> None:
        self._store, self._read, self._first, self._device = store, read, first, compute.device
        self._buffers = Buffers(pinned=compute.device.type == "cuda")

    def __call__(self, encoder: Encoder, batch: WindowBatch) -> StateBatch:
        """Read a batch of the windows that were kept; `batch.rows` says which ones they are."""
        _, hidden, _ = self._store.layout.shape
        states = self._buffers.take((1, *batch.mask.shape, hidden), torch.float32)
        self._store.read(batch.rows, states)
        with starting_at(encoder.model, self._first, states[0].to(self._device, non_blocking=True)):
            return self._read(encoder, batch)
