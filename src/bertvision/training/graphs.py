"""A step of training as one CUDA graph: the host hands over a batch, and the device does all the rest by itself.

For small encoders the host takes longer to tell a GPU what to do than the GPU to do it.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

# Steps of a shape before it is captured: libraries choose kernels and set up their memory in them.
STEPS_BEFORE_CAPTURE = 3


@runtime_checkable
class FixedBatch(Protocol):
    """A batch whose tensors have the same shapes as those of every other batch of its `shape`."""

    @property
    def shape(self) -> Hashable | None:
        """Name the shape; None: it may come once."""
        ...

    def tensors(self) -> list[Tensor]:
        """List all tensors."""
        ...

    def clone(self) -> "FixedBatch":
        """Return a copy in memory of its own."""
        ...


Given = TypeVar("Given", bound=FixedBatch)


class _Captured(NamedTuple):
    graph: torch.cuda.CUDAGraph
    given: list[Tensor]  # where the graph reads its batches
    result: Tensor


class StepGraphs:
    """Runs a function of batches that makes the host wait for nothing, from its fourth time on as a graph."""

    def __init__(self, device: torch.device) -> None:
        index = device.index if device.index is not None else torch.cuda.current_device()
        self._generator = torch.cuda.default_generators[index]
        self._seen: Counter[Hashable] = Counter()
        self._captured: dict[Hashable, _Captured] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self.problem: str | None = None  # why graphs are not used any more

    def run(self, take: Callable[[Sequence[Given]], Tensor], batches: Sequence[Given]) -> Tensor:
        """Return what the function gives for the batches."""
        key = tuple(batch.shape for batch in batches)
        if self.problem is not None or None in key:
            return take(batches)
        if key not in self._captured:
            self._seen[key] += 1
            if self._seen[key] <= STEPS_BEFORE_CAPTURE or not self._capture(key, take, batches):
                return take(batches)
        captured = self._captured[key]
        for place, tensor in zip(captured.given, _tensors(batches), strict=True):
            place.copy_(tensor)
        captured.graph.replay()
        return captured.result.clone()

    def _capture(self, key: Hashable, take: Callable[[Sequence[Given]], Tensor], batches: Sequence[Given]) -> bool:
        """Record the step without taking it, on copies of the batches: there later ones are put."""
        graph, randomness = torch.cuda.CUDAGraph(), self._generator.clone_state()
        places: list[Any] = [batch.clone() for batch in batches]
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                result = take(places)
        except RuntimeError as error:  # something in it makes the host wait
            self.problem = str(error).strip().splitlines()[0]
            self._generator.graphsafe_set_state(randomness)  # a capture that failed never gives it back
            return False
        self._captured[key] = _Captured(graph, _tensors(places), result)
        return True


def _tensors(batches: Sequence[FixedBatch]) -> list[Tensor]:
    return [tensor for batch in batches for tensor in batch.tensors()]
