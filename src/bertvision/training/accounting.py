"""What a training costs: seconds, memory, energy."""

import ctypes
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

from bertvision.training.device import wait_for

Item = TypeVar("Item")
PROCESS = Path("/proc/self")


class Costs(NamedTuple):
    """What a training has cost so far."""

    seconds: float = 0.0
    data_seconds: float = 0.0  # of them: making batches and handing them to the device
    peak_process_bytes: int = 0
    peak_device_bytes: int | None = None  # None where the device has no memory of its own
    joules: float | None = None  # of the whole device; None where it does not say


class Meter:
    """Adds up costs between `go` and `stop`, going on from what a training that was stopped had cost before."""

    def __init__(self, device: torch.device, before: Costs | None = None) -> None:
        self._device, self._costs = device, before or Costs()
        self._started = self._joules = 0.0
        self._data = 0.0

    def go(self) -> None:
        """Start the clock; what was held before, such as while weights were written, is no part of the peaks."""
        forget_peaks(self._device)
        self._started, self._data = time.perf_counter(), 0.0
        self._joules = device_joules(self._device) or 0.0

    @property
    def elapsed(self) -> float:
        """Return the seconds until now, without waiting for the device."""
        return self._costs.seconds + time.perf_counter() - self._started

    def stop(self) -> Costs:
        """Stop the clock, and give all costs until now."""
        wait_for(self._device)
        old, joules = self._costs, device_joules(self._device)
        device_bytes = peak_bytes(self._device) if self._device.type == "cuda" else None
        self._costs = Costs(
            seconds=old.seconds + time.perf_counter() - self._started,
            data_seconds=old.data_seconds + self._data,
            peak_process_bytes=max(old.peak_process_bytes, peak_process_bytes()),
            peak_device_bytes=None if device_bytes is None else max(old.peak_device_bytes or 0, device_bytes),
            joules=None if joules is None else (old.joules or 0.0) + joules - self._joules,
        )
        return self._costs

    def timed(self, items: Iterable[Item]) -> Iterator[Item]:
        """Pass items on, and count the time of making them as the data's."""
        made = iter(items)
        while True:
            started = time.perf_counter()
            item = next(made, None)
            self._data += time.perf_counter() - started
            if item is None:
                return
            yield item


def peak_bytes(device: torch.device) -> int:
    """Return the most memory that was held since the peaks were last forgotten: a GPU's, or else the process's."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_process_bytes()


def peak_process_bytes() -> int:
    """Return the most memory that this process has held since the peaks were last forgotten (Linux), or ever.

    0 where the system does not say.
    """
    status = PROCESS / "status"
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    try:
        import resource  # not on Windows
    except ModuleNotFoundError:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def give_back_memory() -> None:
    """Let the C library give the system what it holds of memory that is free, where it can.

    Batches of ever new shapes leave gaps that it keeps: of 716 MB after 70 steps on a CPU, 409 were free.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another library than glibc
            ctypes.CDLL("libc.so.6").malloc_trim(0)


def device_joules(device: torch.device) -> float | None:
    """Read a GPU's meter of energy through the driver's own library; None where there is none."""
    if device.type != "cuda":
        return None
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        handle, millijoules = ctypes.c_void_p(), ctypes.c_ulonglong()
        identity = f"GPU-{torch.cuda.get_device_properties(device).uuid}".encode()
        failed = (
            nvml.nvmlInit_v2()
            or nvml.nvmlDeviceGetHandleByUUID(identity, ctypes.byref(handle))
            or nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(millijoules))
        )
    except (OSError, AttributeError):
        return None
    return None if failed else millijoules.value / 1000


def forget_peaks(device: torch.device) -> None:
    """Let peaks of memory count from now on."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with suppress(OSError):  # where this is not Linux, the peak is that of the whole process
        (PROCESS / "clear_refs").write_text("5")
