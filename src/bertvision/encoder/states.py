"""What heads learn from: batches of states. A head cannot tell where they come from."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

from bertvision.encoder.encode import encode, encode_cls, encode_output
from bertvision.encoder.load import Encoder
from bertvision.shapes import LayerStates, Segments, TokenMask
from bertvision.training.objective import Objective
from bertvision.windows.batches import WindowBatch


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


def read_states(
    encoder: Encoder, batch: WindowBatch, *, layers: tuple[int, ...] | None = None, cls: bool = False
) -> StateBatch:
    """Run the encoder on a batch for heads; with `cls` for those that read the first token's states alone."""
    if cls:
        return StateBatch(encode_cls(encoder, batch, layers=layers), batch.first_tokens())
    return StateBatch(encode(encoder, batch, layers=layers), batch)


def read_output(encoder: Encoder, batch: WindowBatch, objective: Objective) -> StateBatch:
    """Run the encoder on a batch for its own output layer."""
    seen = batch if objective.per == "token" else batch.first_tokens()
    return StateBatch(encode_output(encoder, batch, objective), seen)
