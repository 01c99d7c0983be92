"""Heads on states that are larger than memory: gigabytes a second, beside those of the disk alone."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import torch
from pydantic import Field

from benchmarks.measuring import MemoryWatch, windows_like_squad
from bertvision.errors import SettingsError
from bertvision.heads.config import HeadConfig, HeadsConfig
from bertvision.heads.training import build_heads, train_heads_together
from bertvision.progress import SILENT, Progress
from bertvision.records import BenchRecord, Side, provenance
from bertvision.settings import Config
from bertvision.shapes import StackShape
from bertvision.states.blocks import BlockLayout, BlockShape, BlockStore, ShardFile
from bertvision.states.cached import CachedStates
from bertvision.training.device import choose_compute
from bertvision.windows.padding import lengths_of
from bertvision.windows.step_plan import BatchConfig

GROUPS = Path("/sys/fs/cgroup")
PIECE = 1 << 24  # bytes that are read and written at once


class DiskBench(Config):
    """What is measured; the shape is gte-small's."""

    windows: int = Field(3000, ge=1)  # as long as SQuAD's
    layers: int = Field(13, ge=1)
    hidden: int = Field(384, ge=1)
    head: str = "learned_pooling"
    limit: float = Field(1.5, gt=0)  # gigabytes of memory, with what is kept of files
    folder: str | None = None  # for the states; None: the system's place for temporary files


class Work(NamedTuple):
    """States of random numbers in files, and how they are read."""

    config: DiskBench
    folder: Path

    @property
    def shape(self) -> StackShape:
        """Return the states' shape."""
        return StackShape(self.config.layers, self.config.hidden)

    @property
    def layout(self) -> BlockLayout:
        """Return where every window's states lie."""
        windows = windows_like_squad(self.config.windows, 1000)
        return BlockLayout(BlockShape(*self.shape, "bf16"), lengths_of(windows))

    def shards(self) -> list[tuple[Path, int]]:
        """Return the files and their sizes."""
        return [(self.folder / f"{number:05}", size) for number, size in enumerate(self.layout.sizes)]

    def source(self) -> CachedStates:
        """Open the states as training does."""
        store = BlockStore(self.layout, [ShardFile(path) for path, _ in self.shards()])
        windows = windows_like_squad(self.config.windows, 1000)
        return CachedStates(store, windows, BatchConfig(tokens=16384), 0, choose_compute("cpu"), pad_id=0)

    def read_files(self) -> None:
        """Read the files from their beginning to their end."""
        for path, _ in self.shards():
            with path.open("rb", buffering=0) as file:
                while file.read(PIECE):
                    pass

    def read_batches(self) -> None:
        """Read the batches of an epoch."""
        for _ in self.source().epoch(0):
            pass

    def train(self) -> None:
        """Train a head for an epoch."""
        train = (HeadConfig.model_validate(self.config.head),)
        heads = build_heads(train, self.shape, seed=1)
        settings = HeadsConfig(train=train, batch=BatchConfig(tokens=16384))
        for _ in train_heads_together(heads, self.source(), settings, seed=1, compute=choose_compute("cpu")):
            pass


class Taken(NamedTuple):
    """What one way took."""

    seconds: float
    anonymous: int  # bytes


SIDES: dict[str, tuple[Callable[[Work], None], bool]] = {  # and whether memory is limited
    "the files alone": (Work.read_files, True),
    "batches read": (Work.read_batches, True),
    "a head trained": (Work.train, True),
    "a head trained, all in memory": (Work.train, False),
}


def bench_disk(config: DiskBench, progress: Progress = SILENT) -> BenchRecord:
    """Read and train in new processes whose memory does not hold the states, and once in one that has all of them."""
    compute = choose_compute("cpu")
    with tempfile.TemporaryDirectory(dir=config.folder) as name, progress.bar("measure", len(SIDES) + 1) as bar:
        work = Work(config, Path(name))
        write_states(work)
        bar.advance(1)
        found = {}
        for side in SIDES:
            found[side] = _in_new_process(work, side)
            bar.advance(1, lambda side=side: side)  # type: ignore[misc]
    size = work.layout.num_bytes
    return BenchRecord(
        name="disk",
        variant=config.head,
        about="an epoch on kept states in files, in a process whose memory does not hold them",
        settings=config.model_dump(mode="json", exclude={"folder"}),
        sides=tuple(Side(name=side, seconds=(round(taken.seconds, 3),)) for side, taken in found.items()),
        figures={
            **{f"{side}: MB a second": round(size / taken.seconds / 1e6, 1) for side, taken in found.items()},
            **{f"{side}: anonymous MB": round(taken.anonymous / 1e6, 1) for side, taken in found.items()},
            "GB of states": round(size / 1e9, 3),
        },
        provenance=provenance(compute.name, compute.precision),
    )


def write_states(work: Work) -> None:
    """Fill the files with numbers as small as states, and see to it that they are on the disk."""
    numbers = torch.randn(PIECE // 2, generator=torch.Generator().manual_seed(0)).bfloat16()
    piece = numbers.view(torch.uint8).numpy().tobytes()
    for path, size in work.shards():
        with path.open("wb") as file:
            for first in range(0, size, PIECE):
                file.write(piece[: size - first])
            file.flush()
            os.fsync(file.fileno())


def _forget(work: Work) -> None:
    """Drop what memory holds of the files."""
    for path, _ in work.shards():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _in_new_process(work: Work, side: str) -> Taken:
    is_limited = SIDES[side][1]
    if is_limited:
        _forget(work)
    else:
        work.read_files()
    limit = limited_group(work.config.limit) if is_limited else nullcontext(None)
    with limit as group, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measure, work, side, group).result()


def _measure(work: Work, side: str, group: Path | None) -> Taken:
    if group is not None:
        (group / "cgroup.procs").write_text(str(os.getpid()))
    started = time.perf_counter()
    with MemoryWatch() as held:
        SIDES[side][0](work)
    return Taken(time.perf_counter() - started, held.anonymous)


@contextmanager
def limited_group(gigabytes: float) -> Iterator[Path]:
    """Make a control group whose processes have so much memory together, and remove it when they are gone."""
    is_first_version = (GROUPS / "memory").is_dir()
    group = (GROUPS / "memory" if is_first_version else GROUPS) / f"bertvision-{os.getpid()}"
    limit = group / ("memory.limit_in_bytes" if is_first_version else "memory.max")
    try:
        group.mkdir()
        limit.write_text(str(int(gigabytes * 1e9)))
    except OSError as error:
        raise SettingsError(f"{limit}: memory cannot be limited here ({error}); it takes root on Linux") from None
    try:
        yield group
    finally:
        group.rmdir()
