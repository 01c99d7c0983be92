"""Where to compute and in which precision."""

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from bertvision.errors import SettingsError
from bertvision.settings import Precision, check_precision
from bertvision.training.processes import ALONE, Processes, is_several

CPU_BF16 = ("avx512_bf16", "amx_bf16")  # instructions; without them bf16 is slower than float32 on a CPU
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12}  # dense bf16 operations a second, by a word of the name


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
