"""Measures in a few seconds how fast this machine encodes, trains heads, and reads and writes kept states."""

import math
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from bertvision.encoder.states import StateBatch, StateSource
from bertvision.files import sha256_of
from bertvision.states.blocks import BlockStore, write_blocks
from bertvision.states.cached import CachedStates
from bertvision.states.disk import write_shard
from bertvision.states.keep import Wanted
from bertvision.states.machine import existing, free_disk
from bertvision.states.planner import Speeds
from bertvision.training.device import wait_for
from bertvision.windows.batches import BatchConfig, EncoderBatch, Rows, StepPlan, lengths_of

SECONDS = 1.0  # that each measurement may take, unless a single step takes longer
MOST_TIMES = 20
FEWEST = 8  # windows: a few say little of many, where threads and launches cost more than the work
SAMPLE_BYTES = 128_000_000  # of the file that is written and read
Train = Callable[[StateSource], None]  # trains throwaway heads for one pass


def measure_speeds(wanted: Wanted, plan: StepPlan, folder: Path, train: Train | None) -> Speeds:
    """Run encoder, heads, memory and disk on a sample of the work; without `train` heads take no time."""
    planned = _typical(plan.epoch(0))
    rows, encode_seconds = _measure_encoder(wanted, planned)
    sample = wanted.encode(rows)
    tokens = lengths_of([wanted.windows[row] for row in rows])
    step = min(len(planned.steps[0]), len(rows))
    write, read = _measure_disk(folder)
    return Speeds(
        encoder=int(tokens.sum()) / encode_seconds,
        heads=int(tokens[:step].sum()) / _measure_heads(sample.part(0, step), train) if train else math.inf,
        ram=_measure_ram(wanted, rows, sample),
        disk_write=write,
        disk_read=read,
        reads_aside=wanted.compute.device.type == "cuda",
    )


class Rehearsal:
    """Gives one batch again and again for about `SECONDS` and tells how long a step on it takes."""

    def __init__(self, batch: StateBatch) -> None:
        self._batch = batch
        self.seconds = 0.0

    def num_steps(self, epoch: int) -> int:
        """Count the steps at most."""
        return 1 + MOST_TIMES

    def epoch(self, number: int, first_step: int = 0) -> Iterator[StateBatch]:
        """Give the batch once to warm up, then until time is up."""
        yield self._batch
        device, taken = self._batch.states.device, 0
        wait_for(device)
        started = time.perf_counter()
        while taken < MOST_TIMES and time.perf_counter() - started < SECONDS:
            yield self._batch
            taken += 1
        wait_for(device)
        self.seconds = (time.perf_counter() - started) / taken


def _typical(batches: list[EncoderBatch]) -> EncoderBatch:
    return sorted(batches, key=lambda batch: batch.width)[len(batches) // 2]


def _measure_encoder(wanted: Wanted, planned: EncoderBatch) -> tuple[Rows, float]:
    """Give as many windows of a batch as the encoder runs on in the time, and how many seconds it takes."""

    def encode(rows: Rows) -> None:
        wanted.encode(rows)
        wait_for(wanted.compute.device)

    rows = planned.rows[: math.ceil(FEWEST / wanted.group) * wanted.group]
    encode(rows)  # warm
    while len(rows) < len(planned.rows) and _seconds_of(encode, rows, times=1) < SECONDS / 2:
        rows = planned.rows[: 4 * len(rows)]
    return rows, _seconds_of(encode, rows)


def _measure_heads(batch: StateBatch, train: Train) -> float:
    rehearsal = Rehearsal(batch)
    train(rehearsal)
    return rehearsal.seconds


def _measure_ram(wanted: Wanted, rows: Rows, sample: StateBatch) -> float:
    """Read the sample as kept states are read: bytes of kept states a second."""
    windows = [wanted.windows[row] for row in rows]
    layout = replace(wanted, windows=windows).layout()
    shards = [torch.zeros(size, dtype=torch.uint8) for size in layout.sizes]
    for number, batches in enumerate(layout.shards):
        for chosen in batches:
            write_blocks(layout, shards[number], chosen, sample.states[torch.from_numpy(chosen)].transpose(0, 1))
    batch = BatchConfig(windows=len(windows))
    source = CachedStates(BlockStore(layout, shards), windows, batch, 1, wanted.compute, pad_id=0)
    return layout.num_bytes / _seconds_of(lambda: deque(source.epoch(0), maxlen=0))


def _measure_disk(folder: Path) -> tuple[float, float]:
    """Write and read a file beside the kept states' place, past the page cache where the system allows it."""
    size = min(SAMPLE_BYTES, free_disk(folder) // 10)
    if size == 0:
        return 1.0, 1.0  # a full disk, which the states do not fit on anyway
    sample = torch.from_numpy(np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8))
    with tempfile.TemporaryDirectory(prefix=".bertvision-", dir=existing(folder)) as place:
        path = Path(place) / "sample"
        write = _seconds_of(write_shard, path, sample, times=1)
        check = _seconds_of(sha256_of, path, times=1)  # kept states are checked when they are opened
        read = _read_back(path)
    return size / (write + check), size / read


def _read_back(path: Path) -> float:
    with path.open("rb") as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return _seconds_of(file.read, times=1)


def _seconds_of(action: Callable[..., object], *arguments: object, times: int = MOST_TIMES) -> float:
    """Time an action: the mean over `SECONDS` or some times, the first of which does not count."""
    started = time.perf_counter()
    action(*arguments)
    first = time.perf_counter() - started
    again = min(times - 1, int(SECONDS / first))
    for _ in range(again):
        action(*arguments)
    return (time.perf_counter() - started - first) / again if again else first
