"""Runs the frozen encoder each time: no states on disk, and no reading of them."""

from collections.abc import Iterator, Sequence

import torch

from bertvision.encoder.encode import encode
from bertvision.encoder.load import Encoder
from bertvision.encoder.states import StateBatch
from bertvision.features.batches import BatchConfig, Rows, collate, lengths_of, plan_epoch, plan_in_order_of_length
from bertvision.features.windows import Window
from bertvision.training.device import Compute


class LiveStates:
    """The states of windows under a frozen encoder (see `encoder.encode.freeze`), shuffled in each epoch."""

    def __init__(
        self, encoder: Encoder, windows: Sequence[Window], batch: BatchConfig, seed: int, compute: Compute
    ) -> None:
        self._encoder, self._windows, self._batch, self._seed, self._compute = encoder, windows, batch, seed, compute
        self._lengths = lengths_of(windows)

    def num_steps(self, epoch: int) -> int:
        """Count the batches of an epoch."""
        return len(self._plan(epoch))

    def epoch(self, number: int, first_step: int = 0) -> Iterator[StateBatch]:
        """Give the batches of one epoch, from `first_step` on."""
        return live_states(self._encoder, self._windows, self._plan(number)[first_step:], self._compute)

    def _plan(self, epoch: int) -> list[Rows]:
        return plan_epoch(self._lengths, self._batch, self._seed, epoch)


def states_in_order_of_length(
    encoder: Encoder, windows: Sequence[Window], tokens: int, compute: Compute
) -> Iterator[StateBatch]:
    """Give every window's states once, in large batches of equal length, for prediction."""
    return live_states(encoder, windows, plan_in_order_of_length(lengths_of(windows), tokens), compute)


def live_states(
    encoder: Encoder, windows: Sequence[Window], plan: Sequence[Rows], compute: Compute
) -> Iterator[StateBatch]:
    """Run the frozen encoder on one batch of windows after the other."""
    for rows in plan:
        batch = collate(windows, rows, encoder.tokenizer.pad_token_id).to(compute.device)
        with torch.no_grad():
            states = encode(encoder, batch)
        yield StateBatch(states, batch)
