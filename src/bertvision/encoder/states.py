"""What heads learn from: batches of states. A head cannot tell where they come from."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

from bertvision.features.batches import WindowBatch
from bertvision.shapes import LayerStates, Segments, TokenMask


class StateBatch(NamedTuple):
    """What a head sees of a batch: states, mask and segments; and what its loss needs."""

    states: LayerStates
    windows: WindowBatch

    @property
    def size(self) -> int:
        """Count the windows."""
        return self.windows.size

    @property
    def seen(self) -> tuple[LayerStates, TokenMask, Segments]:
        """Give the arguments of a head."""
        return self.states, self.windows.mask, self.windows.segments

    def part(self, first: int, stop: int) -> "StateBatch":
        """Give some of the windows, as views: every layer's part still lies in one piece."""
        return StateBatch(self.states[first:stop], self.windows.part(first, stop))


@runtime_checkable
class StateSource(Protocol):
    """Batches of all layers' states, in an order that the seed decides; `activations` holds the kinds there are."""

    def num_steps(self, epoch: int) -> int:
        """Count the batches of an epoch: a head takes a step on each."""
        ...

    def epoch(self, number: int, first_step: int = 0) -> Iterator[StateBatch]:
        """Give the batches of one epoch, from `first_step` on."""
        ...
