"""States that were computed once, in memory or in an extracted folder, as batches for heads.

They lie without padding, token after token, as [token, layer, hidden], and heads get them in the order and with the
padding of the live source. Batches use their memory again, and a thread makes the next while the last one is used.
"""

import copy
import math
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from bertvision.encoder.encode import StateBatch, shape_of_states
from bertvision.encoder.load import Encoder
from bertvision.errors import TrainingError
from bertvision.model_config import Pooling
from bertvision.progress import SILENT, Progress
from bertvision.shapes import StackShape
from bertvision.states.live import plan_of, states_of
from bertvision.tables import in_units
from bertvision.training.device import Compute
from bertvision.windows.batches import collate
from bertvision.windows.plan import BatchConfig, Rows, lengths_of, plan_in_order_of_length
from bertvision.windows.window import Window

TokenStates = Float[Tensor, "token layer hidden"]  # of windows one after the other, without padding
StackedStates = Float[Tensor, "layer batch token hidden"]  # LayerStates as they lie in memory
BUILD_TOKENS = 16384  # what the encoder runs on at once while states are kept in memory
MESSAGE_BYTES = 1 << 28  # what several processes tell each other at once


@dataclass(frozen=True)
class StateRequest:
    """Which states of which windows."""

    encoder: Encoder  # frozen
    windows: Sequence[Window]
    compute: Compute
    layers: tuple[int, ...] | None = None  # None: all
    pooling: Pooling | None = None  # one state per layer; None: of all tokens
    group: int = 1  # windows that are judged together, neighbours in every step

    @property
    def shape(self) -> StackShape:
        """Return the shape of every token's states."""
        return shape_of_states(self.encoder, self.layers, pooling=self.pooling)

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Return how many tokens of each window are kept."""
        lengths = lengths_of(self.windows)
        return lengths if self.pooling is None else np.ones_like(lengths)

    def num_bytes(self, dtype: torch.dtype) -> int:
        """Count the bytes of all states."""
        return int(self.lengths.sum()) * self.shape.layers * self.shape.hidden * dtype.itemsize

    def encode(self, rows: Rows) -> StateBatch:
        """Compute the states of some windows."""
        return states_of(self.encoder, self.windows, rows, self.compute, layers=self.layers, pooling=self.pooling)


class States(Protocol):
    """States of windows one after the other, of which a slice of the tokens can be read."""

    def __getitem__(self, tokens: slice) -> TokenStates:
        """Read some tokens' states."""
        ...


class StateStore(NamedTuple):
    """The states of all windows."""

    parts: Sequence[States]
    part_of: npt.NDArray[np.int64]  # in which part a window lies
    starts: npt.NDArray[np.int64]  # and at which token of it
    lengths: npt.NDArray[np.int64]
    shape: StackShape
    is_pooled: bool

    def read(self, rows: Rows, states: StackedStates) -> None:
        """Fill a batch with some windows' states and what lies beyond their last token with zeros."""
        for place, row in enumerate(rows):
            start = int(self.starts[row])
            length = int(self.lengths[row])
            found = self.parts[self.part_of[row]][start : start + length]
            states[:, place, :length] = found.transpose(0, 1)
            states[:, place, length:] = 0


def keep_in_memory(request: StateRequest, dtype: torch.dtype, progress: Progress = SILENT) -> StateStore:
    """Compute the states of all windows once; several processes take turns at the batches and then have all states."""
    processes = request.compute.processes
    needed = request.num_bytes(dtype)
    room = free_memory() // processes.count
    if needed > room:
        raise TrainingError(
            f"the states need {in_units(needed)} of memory and {in_units(room)} are free; set states.source to live, "
            f"or states.memory (GiB) to less than {needed / 2**30:.2g}"
        )
    batches = plan_in_order_of_length(lengths_of(request.windows), BUILD_TOKENS)
    starts = starts_of(request, batches)
    states = torch.zeros(int(request.lengths.sum()), *request.shape, dtype=dtype)
    with progress.bar("keep states", len(request.windows)) as bar:
        for rows in processes.own(batches):
            found = without_padding(request.encode(rows), dtype)
            start = int(starts[rows[0]])
            states[start : start + len(found)] = found
            bar.advance(len(rows) * processes.count)
    for part in states.view(torch.uint8).flatten().split(MESSAGE_BYTES):
        processes.add_up([part])  # where one has a state, the others have zeros
    is_pooled = request.pooling is not None
    return StateStore([states], np.zeros_like(starts), starts, request.lengths, request.shape, is_pooled)


def starts_of(request: StateRequest, batches: Sequence[Rows]) -> npt.NDArray[np.int64]:
    """Return at which token each window begins where batches lie one after the other."""
    order = np.concatenate(batches)
    ends = np.cumsum(request.lengths[order])
    starts = np.zeros(len(request.windows), dtype=np.int64)
    starts[order] = ends - request.lengths[order]
    return starts


def without_padding(batch: StateBatch, dtype: torch.dtype) -> TokenStates:
    """Return the states of a batch's windows one after the other, on the host."""
    return batch.states.to(dtype).transpose(1, 2)[batch.windows.mask].cpu()


def free_memory(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return the bytes of memory that can be had without swapping."""
    if meminfo.is_file():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        if "MemAvailable" in lines:
            return 1024 * int(lines["MemAvailable"].split()[0])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # macOS tells only what is built in


class StoredStates:
    """The states of a store, shuffled in each epoch as `LiveStates` with the same settings would."""

    def __init__(
        self,
        store: StateStore,
        windows: Sequence[Window],
        batch: BatchConfig,
        seed: int,
        compute: Compute,
        *,
        pad_id: int,
        states_batch: BatchConfig | None = None,
        group: int = 1,
    ) -> None:
        self._store, self._windows, self._compute, self._pad_id = store, windows, compute, pad_id
        self._plan = plan_of(windows, batch, seed, states_batch, group, compute)
        self._buffers = Buffers(pinned=self._on_gpu)

    def num_steps(self, epoch: int) -> int:
        """Count the steps of an epoch."""
        return self._plan.num_steps(epoch)

    def epoch(self, number: int, first_step: int = 0) -> Iterator[StateBatch]:
        """Return the steps of one epoch, from `first_step` on; a GPU works on one while the next one is read."""
        steps = [
            _Step(rows, batch.width, batch.share_of(number))
            for batch in self._plan.epoch(number, first_step)
            for number, rows in enumerate(batch.steps)
            if number >= batch.done
        ]
        # On a CPU the reader would take the heads' cores: 231,000 tokens a second against 308,000 in turns (2 cores).
        for batch in made_ahead(self._read, steps) if self._on_gpu else map(self._read, steps):
            states = batch.states.to(self._compute.device, non_blocking=True)
            yield StateBatch(states, batch.windows.to(self._compute.device))

    def whole(self) -> "StoredStates":
        """Return the same source for a process that needs all windows of every step."""
        whole = copy.copy(self)
        whole._plan = self._plan.whole()
        return whole

    @property
    def _on_gpu(self) -> bool:
        return self._compute.device.type == "cuda"

    def _read(self, step: "_Step") -> StateBatch:
        windows = collate(self._windows, step.rows, self._pad_id, step.width)._replace(share=step.share)
        if self._store.is_pooled:
            windows = windows.first_tokens()
        layers, hidden = self._store.shape
        states = self._buffers.take((layers, *windows.mask.shape, hidden), self._compute.dtype)
        self._store.read(step.rows, states)
        return StateBatch(states.transpose(0, 1), windows)


class _Step(NamedTuple):
    rows: Rows
    width: int
    share: float | None


Item = TypeVar("Item")
Made = TypeVar("Made")


def made_ahead(make: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """Make the next thing in a thread while the last one is used; its errors come out here, and it ends with this."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        ahead: Future[Made] | None = None
        for item in items:
            ready = ahead
            ahead = thread.submit(make, item)
            if ready is not None:
                yield ready.result()
        if ahead is not None:
            yield ahead.result()


class Buffers:
    """Gives tensors in memory that earlier ones have left; pinned memory torch itself uses again.

    Fresh memory costs a page fault per 4 KB: batches of 7 x 384 states were read at 250,000 tokens a second into fresh
    memory and at 880,000 into used memory (2 cores). An epoch on 14,213 kept tokens took 0.16 s instead of 0.09 s of a
    core with learned_pooling, and 0.27 s instead of 0.21 s with adapter_64_shared (best of 5). References are counted
    because autograd, or who reads ahead, may hold a batch for longer than until the next one.
    """

    def __init__(self, *, pinned: bool = False) -> None:
        self._pinned = pinned
        self._arrays: list[npt.NDArray[np.uint8]] = []
        self._lock = threading.Lock()

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return a tensor with any content; its memory comes back by itself when the last view of it is gone."""
        if self._pinned:
            return torch.empty(shape, dtype=dtype, pin_memory=True)
        size = math.prod(shape) * dtype.itemsize
        with self._lock:
            place = next((place for place in range(len(self._arrays)) if self._is_free(place)), len(self._arrays))
            if place == len(self._arrays) or len(self._arrays[place]) < size:
                self._arrays[place : place + 1] = [np.empty(size, dtype=np.uint8)]
            return torch.from_numpy(self._arrays[place][:size]).view(dtype).view(shape)

    def _is_free(self, place: int) -> bool:
        """Return whether only this list refers to an array: a tensor and all its views hold a reference to theirs."""
        return sys.getrefcount(self._arrays[place]) == _REFERENCES_OF_AN_ITEM


_ITEMS = [np.empty(0)]
_REFERENCES_OF_AN_ITEM = sys.getrefcount(_ITEMS[0])  # one by the list, and those of the call itself
