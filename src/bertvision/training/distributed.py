"""Several processes that do one run together: which of them this one is, what they add up, and what they agree on.

All of them run the same line. Each computes its part of every batch; the first one alone decides, writes and shows.
"""

import atexit
import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, distributed

from bertvision.errors import MissingExtraError, SettingsError, TrainingError, is_out_of_memory, reason_of
from bertvision.windows.plan import Part

Item = TypeVar("Item")
GO_ON = "the same command goes on from its last saving"
LONGEST_WAIT = timedelta(hours=12)  # for what the main process does alone; one that was killed is noticed at once
# What `accelerate launch` tells its processes of what it was asked for.
REFUSED = {
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "a parallelism config",
}
SECONDS_TO_END = 30.0  # that a process has when it is asked to end


@dataclass(frozen=True)
class Processes:
    """The processes of a run, seen from one of them."""

    rank: int = 0
    count: int = 1
    device: torch.device = torch.device("cpu")  # on which they add up

    @property
    def is_main(self) -> bool:
        """Return whether this is the one that decides, writes and shows."""
        return self.rank == 0

    @property
    def part(self) -> Part:
        """Return which windows of every step are this one's."""
        return Part(self.rank, self.count)

    def own(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return every so-many-th item: all processes together have each once."""
        return items[self.rank :: self.count]

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Put the sum over all processes in the place of each tensor, in as few messages as there are types."""
        if self.count == 1:
            return
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            own = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.reshape(-1) for tensor in own]).to(self.device)
            with _others_are_there():
                distributed.all_reduce(flat)
            for tensor, part in zip(own, torch.split(flat, [tensor.numel() for tensor in own]), strict=True):
                tensor.copy_(part.view_as(tensor))

    def add_up_array(self, array: npt.NDArray[np.float32]) -> None:
        """Do the same with an array of the host."""
        self.add_up([torch.from_numpy(array)])

    def agreed(self, decide: Callable[[], Item]) -> Item:
        """Return what the main process decides; the others wait for it, and need not be able to tell by themselves."""
        if self.count == 1:
            return decide()
        decided = [decide() if self.is_main else None]
        with _others_are_there():
            distributed.broadcast_object_list(decided, device=self.device)
        found: Item = decided[0]  # type: ignore[assignment]
        return found

    def wait(self) -> None:
        """Wait until all processes have come here."""
        if self.count > 1:
            self.add_up([torch.zeros(1)])


ALONE = Processes()


@contextmanager
def _others_are_there() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise TrainingError(f"another process of this run has ended ({reason_of(error)}); {GO_ON}") from None


def is_several() -> bool:
    """Return whether this process was started as one of several, by Accelerate, torchrun or `launch`."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def join_processes(device: torch.device) -> Processes:
    """Meet the other processes of a run, where there are any."""
    _refuse_others()
    if not is_several():
        return ALONE
    try:
        from accelerate import PartialState
    except ImportError:
        raise MissingExtraError("accelerate", "accelerate") from None
    with _others_are_there():
        state = PartialState(cpu=device.type == "cpu", timeout=LONGEST_WAIT)
    if state.num_processes == 1:
        raise SettingsError(f"several processes need NVIDIA GPUs or CPUs, and the device is {device}; set device: cpu")
    atexit.register(_leave)
    return Processes(state.process_index, state.num_processes, state.device)


def _refuse_others() -> None:
    """Refuse what Accelerate was asked for and would not happen: every process holds the whole encoder."""
    for variable, name in REFUSED.items():
        if os.environ.get(variable, "").lower() == "true":
            raise SettingsError(
                f"{name} is not supported, because every process holds the whole encoder; leave it out of Accelerate's "
                "settings, and where an encoder does not fit into one GPU, set finetune.gradient_checkpointing=true or "
                "train less of it (tune)"
            )


def _leave() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


def launch(count: int, command: Sequence[str]) -> int:
    """Start a command so many times, as processes that find each other on this machine; return its exit code.

    When one fails, the others are ended. Each has its share of the cores, unless OMP_NUM_THREADS says otherwise.
    """
    threads = str(max(1, (os.cpu_count() or 1) // count))
    shared = {"OMP_NUM_THREADS": threads, **os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    shared |= {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    ranks = [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    return _wait_for([subprocess.Popen(command, env=own) for own in ranks])


def _wait_for(started: Sequence[subprocess.Popen[bytes]]) -> int:
    with ThreadPoolExecutor(len(started)) as threads:
        ranks = {threads.submit(each.wait): rank for rank, each in enumerate(started)}
        try:
            failed = next((each for each in as_completed(ranks) if each.result() != 0), None)
            if failed is None:
                return 0
            with suppress(subprocess.TimeoutExpired):
                started[0].wait(SECONDS_TO_END)  # it says what is wrong, where that is the same for all
        except KeyboardInterrupt as stop:
            _let_save(started, is_known=type(stop) is KeyboardInterrupt)
            raise
        finally:
            for each in started:
                _end(each)
    if (code := failed.result()) > 0 and started[0].returncode > 0:
        return started[0].returncode
    how = f"was killed (signal {-code})" if code < 0 else f"failed (code {code})"
    raise TrainingError(f"process {ranks[failed]} of {len(started)} {how}; {GO_ON}")


def _let_save(started: Sequence[subprocess.Popen[bytes]], *, is_known: bool) -> None:
    """Wait until the main process has saved; Ctrl-C on a terminal is known to all, other signals they are told of."""
    for each in [] if is_known else started:
        each.terminate()
    with suppress(subprocess.TimeoutExpired):
        started[0].wait(SECONDS_TO_END)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
