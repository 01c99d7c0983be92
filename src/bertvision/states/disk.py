"""Kept states in files: a folder of shards that can be built in several goes, and a manifest that is written last."""

import errno
import hashlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

from bertvision.errors import FolderError
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
from bertvision.progress import SILENT, Progress
from bertvision.settings import Settings, first_difference
from bertvision.states.blocks import BlockLayout, BlockStore, Bytes, ShardFile
from bertvision.states.config import free_disk, in_units
from bertvision.states.keep import Wanted, encode_shards

MANIFEST, UNFINISHED = "manifest.json", "unfinished.json"
SMALLER = (
    "choose another states.folder, fewer states.layers, states.dtype: int8, or states.source (finetune.bottom): live"
)


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
