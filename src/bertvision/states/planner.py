"""Live, RAM or disk: what each would take for this task, encoder, number of passes and machine, and which to choose.

How fast this machine encodes, trains heads, and reads and writes kept states is measured in a few seconds.
"""

import math
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from bertvision.encoder.encode import StateBatch, StateSource
from bertvision.files import sha256_of
from bertvision.run_folder import TRIAL
from bertvision.states.blocks import BlockStore, write_blocks
from bertvision.states.cached import CachedStates
from bertvision.states.config import SourceName
from bertvision.states.keep import Wanted, existing, free_disk, write_shard
from bertvision.tables import in_time, in_units
from bertvision.training.device import wait_for
from bertvision.windows.padding import Rows, lengths_of
from bertvision.windows.step_plan import BatchConfig, EncoderBatch, StepPlan

# Half of the free memory: batches, heads and the page cache need room too.
RAM_SHARE = 0.5
# A file system that is nearly full is slow, and other programs write too.
DISK_SHARE = 0.9
SECONDS = 1.0  # that each measurement may take, unless a single step takes longer
MOST_TIMES = 20
FEWEST = 8  # windows: a few say little of many, where threads and launches cost more than the work
SAMPLE_BYTES = 128_000_000  # of the file that is written and read
Train = Callable[[StateSource], None]  # trains throwaway heads for one pass


class Work(NamedTuple):
    """What has to be done."""

    tokens: int  # of one pass
    passes: float  # 1.5: half of the states are needed once more
    num_bytes: int  # of all kept states


class Speeds(NamedTuple):
    """How fast this machine is, measured on a sample of the work."""

    encoder: float  # tokens a second, from ids to all states
    heads: float  # tokens a second, all heads together, forward, backward and optimizer
    ram: float  # bytes a second of kept states, from memory into a batch
    disk_write: float  # bytes a second, checksums and waiting for the disk included
    disk_read: float  # bytes a second, from the disk itself
    reads_aside: bool  # whether heads have a processor of their own (a GPU), so that reading goes on beside them


class Machine(NamedTuple):
    """What it has to spare, in bytes."""

    free_ram: int
    free_disk: int


class Estimate(NamedTuple):
    """What one source would take."""

    source: SourceName
    parts: dict[str, float]  # seconds of each part of the work
    num_bytes: int
    misfit: str | None  # why it cannot be chosen

    @property
    def seconds(self) -> float:
        """Add up the parts."""
        return sum(self.parts.values())


class Choice(NamedTuple):
    """The chosen source, and why."""

    source: SourceName
    reason: str
    estimates: list[Estimate]


ONE_PASS = Choice("live", "one pass needs every state once, so keeping them gains nothing", [])


def choose_source(work: Work, speeds: Speeds, machine: Machine) -> Choice:
    """Choose the quickest source that fits; of equals, the one that keeps less."""
    estimates = estimate_sources(work, speeds, machine)
    best = min((each for each in estimates if each.misfit is None), key=lambda each: each.seconds)
    return Choice(best.source, _reason(best, estimates), estimates)


def estimate_sources(work: Work, speeds: Speeds, machine: Machine) -> list[Estimate]:
    """Estimate live, ram and disk, in this order."""
    encode, heads = work.tokens / speeds.encoder, work.passes * work.tokens / speeds.heads
    copy = work.num_bytes / speeds.ram
    room = {"memory": RAM_SHARE * machine.free_ram, "disk": DISK_SHARE * machine.free_disk}
    # What was just written is still in memory where there is room for it, and is not read from the disk again.
    fetch = 0.0 if work.num_bytes <= room["memory"] else work.num_bytes / speeds.disk_read
    in_ram = {"encode": encode, "keep": copy, **_passes(work.passes * copy, heads, speeds)}
    # A shard is filled in memory before it is written.
    on_disk = {"encode": encode, "keep": copy + work.num_bytes / speeds.disk_write}
    on_disk |= _passes(work.passes * (copy + fetch), heads, speeds)
    return [
        Estimate("live", {"encode": work.passes * encode, "heads": heads}, 0, None),
        Estimate("ram", in_ram, work.num_bytes, _misfit(work.num_bytes, room, "memory")),
        Estimate("disk", on_disk, work.num_bytes, _misfit(work.num_bytes, room, "disk")),
    ]


def _passes(read: float, heads: float, speeds: Speeds) -> dict[str, float]:
    return {"read": max(0.0, read - heads) if speeds.reads_aside else read, "heads": heads}


def _misfit(num_bytes: int, room: Mapping[str, float], where: str) -> str | None:
    if num_bytes <= room[where]:
        return None
    return f"{in_units(num_bytes)} of {where}, {in_units(room[where])} to spare"


def _reason(best: Estimate, estimates: Sequence[Estimate]) -> str:
    others = [f"{each.source} {in_time(each.seconds)}" for each in estimates if each is not best and not each.misfit]
    unfit = [f"{each.source} does not fit ({each.misfit})" for each in estimates if each.misfit]
    against = f" against {' and '.join(others)}" if others else ""
    return "; ".join([f"about {in_time(best.seconds)}{against}", *unfit])


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
        """Return the batch once to warm up, then until time is up."""
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
    """Return as many windows of a batch as the encoder runs on in the time, and how many seconds it takes."""

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
    with tempfile.TemporaryDirectory(prefix=TRIAL, dir=existing(folder)) as place:
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
