"""What heads train on: an iterator of state batches. A head cannot tell where they come from."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from bertvision.encoder.encode import StateBatch


@runtime_checkable
class StateSource(Protocol):
    """Batches of all layers' states, in an order that the seed decides."""

    def num_steps(self, epoch: int) -> int:
        """Count the batches of an epoch."""
        ...

    def epoch(self, number: int, first_step: int = 0) -> Iterator[StateBatch]:
        """Give the batches of one epoch, from `first_step` on."""
        ...
