"""Encodes every window once and keeps its states, in memory or in files; what they depend on, and what room there is.

What they depend on is named part by part, so that a stale cache can be told which part is not its own. Files lie in a
folder of shards that can be built in several goes, with a manifest that is written last.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from bertvision.encoder.encode import StateBatch, shape_of_states
from bertvision.encoder.load import Encoder
from bertvision.errors import FolderError, TrainingError
from bertvision.files import (
    check_folder,
    locked,
    read_json,
    recover_all,
    rename,
    sha256_of,
    write_bytes,
    write_json,
)
from bertvision.model_config import Pooling
from bertvision.progress import SILENT, Progress
from bertvision.settings import Settings, first_difference
from bertvision.states.blocks import BlockLayout, BlockShape, BlockStore, Bytes, ShardFile, write_blocks
from bertvision.states.config import NumberFormat
from bertvision.states.live import states_of
from bertvision.tables import in_units
from bertvision.training.device import Compute
from bertvision.windows.padding import Rows, lengths_of
from bertvision.windows.window import Window

FORMAT = 2  # of the files; raise it when the same states would become other bytes
SHOWN = 16  # hexadecimal digits: a difference is shown to a person, and nobody is being deceived
MANIFEST, UNFINISHED = "manifest.json", "unfinished.json"
SMALLER = "choose another states.folder, fewer states.layers, states.dtype: int8, or states.source: live"


@dataclass(frozen=True)
class Wanted:
    """Whose states are kept, and in which form."""

    encoder: Encoder  # frozen
    windows: Sequence[Window]
    compute: Compute
    dtype: NumberFormat = "bf16"
    layers: tuple[int, ...] | None = None  # None: all
    pooling: Pooling | None = None  # one state per layer; None: of all tokens
    group: int = 1  # windows that are judged together, neighbours in every step

    def layout(self) -> BlockLayout:
        """Lay out the blocks of all windows."""
        shape = shape_of_states(self.encoder, self.layers, pooling=self.pooling)
        return BlockLayout(BlockShape(*shape, self.dtype), lengths_of(self.windows), pooled=self.pooling is not None)

    def encode(self, rows: Rows) -> StateBatch:
        """Compute the states of some windows."""
        return states_of(self.encoder, self.windows, rows, self.compute, layers=self.layers, pooling=self.pooling)

    @property
    def way_out(self) -> str:
        """Return what to set where memory does not hold them."""
        return "states.source to disk or live, or keep fewer states.layers"


def keep_in_ram(wanted: Wanted, progress: Progress = SILENT) -> BlockStore:
    """Keep the states of all windows in memory."""
    layout, room = wanted.layout(), free_ram() // wanted.compute.processes.count
    if layout.num_bytes > room:
        raise TrainingError(
            f"the states need {in_units(layout.num_bytes)} of memory and {in_units(room)} are free; set "
            f"{wanted.way_out}"
        )
    return BlockStore(layout, list(encode_shards(wanted, layout, progress=progress)))


def encode_shards(wanted: Wanted, layout: BlockLayout, first: int = 0, progress: Progress = SILENT) -> Iterator[Bytes]:
    """Make one shard after the other; each depends on its own windows alone.

    Several processes take turns at the batches of a shard, and all of them have all of it then.
    """
    left, processes = layout.shards[first:], wanted.compute.processes
    with progress.bar("keep states", sum(len(rows) for batches in left for rows in batches)) as bar:
        for size, batches in zip(layout.sizes[first:], left, strict=True):
            shard = torch.zeros(size, dtype=torch.uint8)
            for rows in processes.own(batches):
                write_blocks(layout, shard, rows, wanted.encode(rows).states.transpose(0, 1))
                bar.advance(len(rows) * processes.count)
            processes.add_up([shard])  # where one has a block, the others have zeros
            yield shard


def fingerprint_of(wanted: Wanted, weights: str, data: Settings) -> Settings:
    """Name all that decides the bytes of a cache; `weights` is the encoder's fingerprint, `data` the file's."""
    return {
        "encoder": weights[:SHOWN],
        "tokenizer": hash_tokenizer(wanted.encoder.tokenizer),
        "windows": hash_windows(wanted.windows),
        "data": data,
        "layers": "all" if wanted.layers is None else list(wanted.layers),
        "dtype": wanted.dtype,
        "cls": wanted.pooling == "first",
        "precision": wanted.compute.precision,
        "format": FORMAT,
        **({} if wanted.pooling in (None, "first") else {"pooling": wanted.pooling}),
    }


def hash_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    """Hash a tokenizer's vocabulary and special tokens."""
    pieces = sorted(tokenizer.get_vocab().items())
    return hashlib.sha256(repr((pieces, tokenizer.all_special_tokens)).encode()).hexdigest()[:SHOWN]


def hash_windows(windows: Sequence[Window]) -> str:
    """Hash what the encoder sees of windows: their tokens and where the context begins."""
    digest = hashlib.sha256()
    for window in windows:
        digest.update(np.array([len(window), window.context_at, *window.ids], dtype="<i4").data)
    return digest.hexdigest()[:SHOWN]


def keep_on_disk(wanted: Wanted, folder: Path, fingerprint: Settings, progress: Progress = SILENT) -> BlockStore:
    """Open the states that a folder holds, or build what they lack; refuse stale and damaged ones."""
    layout, processes = wanted.layout(), wanted.compute.processes
    if not processes.agreed(lambda: is_whole(check_folder(folder))):
        with locked(folder) if processes.is_main else nullcontext():
            if not processes.agreed(lambda: is_whole(folder)):  # another run may have just ended
                _build(wanted, layout, folder, fingerprint, progress)
    processes.agreed(lambda: _check(folder, layout, _read_sums(folder / MANIFEST, fingerprint), progress))
    return BlockStore(layout, [ShardFile(_shard(folder, number)) for number in range(len(layout.sizes))])


def is_whole(folder: Path) -> bool:
    """Return whether a folder holds the states of all windows of some encoder."""
    return (folder / MANIFEST).exists()


def write_shard(path: Path, shard: Bytes) -> str:
    """Write a shard so that it is on the disk in full or not at all; give its sha256."""
    try:
        write_bytes(path, shard.numpy().data)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise FolderError(f"{path.parent}: the disk is full; make room and run again, or {SMALLER}") from None
    return hashlib.sha256(shard.numpy().data).hexdigest()


def _build(wanted: Wanted, layout: BlockLayout, folder: Path, fingerprint: Settings, progress: Progress) -> None:
    """Go on after the last shard that is listed; of several processes the main one writes."""
    processes = wanted.compute.processes
    sums = processes.agreed(lambda: _begin(layout, folder, fingerprint))
    for shard in encode_shards(wanted, layout, len(sums), progress):
        if processes.is_main:
            sums.append(write_shard(_shard(folder, len(sums)), shard))
            write_json(folder / UNFINISHED, {"fingerprint": fingerprint, "sha256": sums})
    processes.agreed(lambda: rename(folder / UNFINISHED, folder / MANIFEST))


def _begin(layout: BlockLayout, folder: Path, fingerprint: Settings) -> list[str]:
    """Return the hashes of the shards that are there, if there is room for the others."""
    recover_all(folder)
    sums = _read_sums(folder / UNFINISHED, fingerprint) if (folder / UNFINISHED).exists() else []
    needed, free = sum(layout.sizes[len(sums) :]), free_disk(folder)
    if needed > free:
        raise FolderError(f"{folder}: the states need {in_units(needed)} and {in_units(free)} are free; {SMALLER}")
    write_json(folder / UNFINISHED, {"fingerprint": fingerprint, "sha256": sums})
    return sums


def _read_sums(path: Path, fingerprint: Settings) -> list[str]:
    content = read_json(path)
    if difference := first_difference(content["fingerprint"], fingerprint):
        raise FolderError(
            f"{path.parent}: holds other states ({difference}); delete it, or choose another states.folder"
        )
    sums: list[str] = content["sha256"]
    return sums


def _check(folder: Path, layout: BlockLayout, sums: list[str], progress: Progress) -> None:
    """Compare every shard with what was written.

    sha256 reads 1.3 GB a second and core where the processor has instructions for it (crc32 3.2, blake2b 0.7): as fast
    as good disks, and shards are read side by side.
    """
    paths = [_shard(folder, number) for number in range(len(layout.sizes))]
    if len(sums) != len(paths):
        raise FolderError(f"{folder}: has {len(sums)} shards, expected {len(paths)}; delete it and run again")
    with ThreadPoolExecutor() as pool, progress.bar("check states", len(paths)) as bar:
        for problem in pool.map(_problem, paths, layout.sizes, sums):
            if problem:
                raise FolderError(f"{problem}; delete {folder} and run again")
            bar.advance(1)


def _problem(path: Path, size: int, expected: str) -> str | None:
    if not path.exists():
        return f"{path}: is missing"
    if path.stat().st_size != size:
        return f"{path}: damaged ({path.stat().st_size} bytes, expected {size})"
    found = sha256_of(path)
    return None if found == expected else f"{path}: damaged (sha256 {found[:12]}, expected {expected[:12]})"


def _shard(folder: Path, number: int) -> Path:
    return folder / f"{number:05}.states"


def free_ram(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return the bytes of memory that can be had without swapping."""
    if meminfo.is_file():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        if "MemAvailable" in lines:
            return 1024 * int(lines["MemAvailable"].split()[0])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # macOS tells only what is built in


def free_disk(folder: Path) -> int:
    """Return the bytes that fit into a folder, which need not exist yet."""
    return shutil.disk_usage(existing(folder)).free


def existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(place for place in (folder.absolute(), *folder.absolute().parents) if place.is_dir())
