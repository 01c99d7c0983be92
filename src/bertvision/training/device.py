"""Where to compute and in which precision.

And steps as CUDA graphs: the host hands over a batch, and the device does all the rest by itself. For small encoders
the host takes longer to tell a GPU what to do than the GPU to do it.
"""

import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from bertvision.errors import SettingsError
from bertvision.settings import Precision, check_precision
from bertvision.training.distributed import ALONE, Processes, is_several

CPU_BF16 = ("avx512_bf16", "amx_bf16")  # instructions; without them bf16 is slower than float32 on a CPU
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12}  # dense bf16 operations a second, by a word of the name
# Steps of a shape before it is captured: libraries choose kernels and set up their memory in them.
STEPS_BEFORE_CAPTURE = 3


class Compute(NamedTuple):
    """A device and the number format of its matrix products (weights in training stay float32).

    And the processes that share the work, each with a device of its own.
    """

    device: torch.device
    dtype: torch.dtype
    processes: Processes = ALONE

    def alone(self) -> "Compute":
        """Return the same device for work that this process does by itself."""
        return self._replace(processes=ALONE)

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context in which forward passes of training run."""
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    @property
    def replays(self) -> bool:
        """Return whether steps of training can be replayed as graphs; adding up over processes is no part of one."""
        return self.device.type == "cuda" and self.processes.count == 1

    @property
    def has_packed_attention(self) -> bool:
        """Return whether there is attention over packed rows that pays: a GPU's, in bf16."""
        return self.device.type == "cuda" and self.dtype == torch.bfloat16

    @property
    def name(self) -> str:
        """Name the device for a record."""
        several = f"{self.processes.count} x " if self.processes.count > 1 else ""
        if self.device.type == "cuda":
            return f"{several}{torch.cuda.get_device_name(self.device)}"
        return f"{several}{self.device.type} ({torch.get_num_threads()} threads)"

    @property
    def peak(self) -> float | None:
        """Return how many operations a second all processes' devices can do in bf16; None where that is not known."""
        return next((peak * self.processes.count for word, peak in PEAKS.items() if word in self.name), None)

    @property
    def precision(self) -> str:
        """Name the number format for a record."""
        return "float32" if self.dtype == torch.float32 else "bf16"

    @property
    def has_faster_bf16(self) -> bool:
        """Whether this is a CPU in float32 that would be faster in bf16, for which it has instructions."""
        if self.device.type != "cpu" or self.dtype != torch.float32:
            return False
        known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}  # older torch has none
        return any(known.get(name) for name in CPU_BF16)


def choose_compute(device: str = "auto", precision: Precision = "auto") -> Compute:
    """Choose a GPU where there is one, and bf16 where the GPU has it.

    On a CPU float32 is the default: most CPUs are slower in bf16, and with it scores would differ more between CPUs.
    """
    check_precision(precision)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and is_several():
        device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        others = "auto, cpu or cuda" if device != "cuda" and torch.cuda.is_available() else "auto or cpu"
        raise SettingsError(f"device {device!r} cannot be used ({reason}); try {others}") from None
    if chosen.type == "cuda":
        # cuDNN plans its attention anew for every new shape, which takes longer than the attention (docs/log.md).
        torch.backends.cuda.enable_cudnn_sdp(False)
    if precision == "auto":
        has_bf16 = chosen.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        precision = "bf16" if has_bf16 else "float32"
    return Compute(chosen, torch.bfloat16 if precision == "bf16" else torch.float32)


@contextmanager
def deterministic(is_asked: bool) -> Iterator[None]:
    """Within this, where asked for, torch takes kernels that give the same bits every time, or refuses to go on."""
    if not is_asked:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when a process first multiplies on a GPU
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def fetch_behind(results: Iterable[Tensor]) -> Iterator[Tensor]:
    """Bring tensors to the host, each one while a GPU works on the next."""
    before: tuple[Tensor, torch.cuda.Event] | None = None
    for result in results:
        if not result.is_cuda:
            yield result
            continue
        fetched = result.to("cpu", non_blocking=True)
        is_there = torch.cuda.Event()
        is_there.record()
        if before is not None:
            before[1].synchronize()
            yield before[0]
        before = fetched, is_there
    if before is not None:
        before[1].synchronize()
        yield before[0]


def wait_for(device: torch.device) -> None:
    """Wait until the device has done what it was told, so that a clock read next is right."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


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
