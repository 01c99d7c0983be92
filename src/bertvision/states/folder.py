"""A folder of extracted states: safetensors shards, which any program can read (docs/howto/states.md has the layout).

A shard holds whole batches of windows, the longest first over the whole folder. It is written at once, and listed with
its hash as soon as it is on the disk, so that an extraction goes on after its last listed shard whenever it was killed.
"""

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from safetensors import safe_open
from torch import Tensor

from bertvision.errors import FolderError
from bertvision.files import check_folder, locked, read_json, recover_all, rename, sha256_of, write_json
from bertvision.manifest import check_hashes
from bertvision.progress import SILENT, Bar, Progress
from bertvision.settings import Settings, first_difference
from bertvision.states.memory import BUILD_TOKENS, StateRequest, StateStore, TokenStates, made_ahead, without_padding
from bertvision.tables import in_units
from bertvision.training.checkpoint import save_tensors
from bertvision.windows.plan import CPU_TOKENS, Rows, lengths_of, plan_in_order_of_length
from bertvision.windows.tokens import Layout, read_layout
from bertvision.windows.window import Window, WindowConfig

FORMAT = 1
MANIFEST, UNFINISHED = "states.json", "unfinished.json"
DTYPE = torch.bfloat16
# A shard is filled in memory, and made again where its making was cut short: half a minute of a small encoder on a CPU.
SHARD_BYTES, SHARD_TOKENS = 1 << 28, 1 << 18


class ShardFile:
    """The states of a shard, of which windows are read when they are used.

    It is not mapped into memory: where that is too small, dropping mapped pages takes longer than reading them. 5 GB of
    states were read at 336 MB a second through a map in 1.5 GB of memory, and so at 706 (a shared core).
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))["states"]
        self._path = path
        self._shape = header["shape"][1:]
        self._begin = 8 + length + header["data_offsets"][0]

    def __getitem__(self, tokens: slice) -> TokenStates:
        """Read some tokens' states."""
        states = torch.empty(tokens.stop - tokens.start, *self._shape, dtype=DTYPE)
        content = states.view(torch.uint8).numpy()
        with self._path.open("rb", buffering=0) as file:
            file.seek(self._begin + tokens.start * states[:1].nbytes)
            if file.readinto(content.data.cast("B")) != content.nbytes:
                raise FolderError(f"{self._path}: was cut short while it was read; extract {self._path.parent} again")
        return states


class WindowTable(NamedTuple):
    """Where the windows of a folder are, in any order."""

    keys: npt.NDArray[np.int64]
    shards: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]


def settings_of(request: StateRequest, fingerprint: str, config: WindowConfig, data: str) -> Settings:
    """Return what decides the states that heads get; `data` is the hash of a file, or its name where it has none."""
    return {
        "format": FORMAT,
        "encoder": fingerprint,
        "windows": config.model_dump(mode="json", exclude={"mask_question"}),  # which hides answers alone
        "data": data,
        "layers": list(request.layers) if request.layers is not None else "all",
        "pooling": request.pooling,
    }


def write_states(request: StateRequest, folder: Path, settings: Settings, progress: Progress = SILENT) -> None:
    """Extract the states of all windows into a folder, or those that it lacks."""
    keys = window_keys(request.windows)
    settings = {
        **settings,
        "keys": hashlib.sha256(keys.tobytes()).hexdigest(),
        "shape": list(request.shape),
        "precision": request.compute.precision,
    }
    if (check_folder(folder) / MANIFEST).exists():
        _read_hashes(folder / MANIFEST, settings)
        progress.say(f"{folder}: holds these states already")
        return
    with locked(folder):
        _write_missing(request, folder, settings, keys, progress)


def open_folder(request: StateRequest, folder: Path, settings: Settings, progress: Progress = SILENT) -> StateStore:
    """Open the states of some windows in a folder; refuse one of other states, and damaged files."""
    if not (folder / MANIFEST).is_file():
        reason = "its extraction was cut short; give the same command again"
        raise FolderError(f"{folder}: {reason if (folder / UNFINISHED).exists() else 'holds no extracted states'}")
    hashes = _read_hashes(folder / MANIFEST, settings)
    processes = request.compute.processes
    processes.agreed(lambda: _check(folder, hashes, progress))
    paths = [folder / name for name in hashes]
    table = _read_table(paths)
    keys = window_keys(request.windows)
    order = np.argsort(table.keys)
    places = order[np.searchsorted(table.keys, keys, sorter=order).clip(max=len(order) - 1)]
    if missing := int((table.keys[places] != keys).sum()):
        raise FolderError(
            f"{folder}: lacks {missing:,} of {len(keys):,} windows, though it is of the same file; extract it with the "
            "settings of this experiment (columns, labels and near misses decide which windows there are)"
        )
    return StateStore(
        [ShardFile(path) for path in paths],
        table.shards[places],
        table.starts[places],
        request.lengths,
        request.shape,
        request.pooling is not None,
    )


def window_keys(windows: Sequence[Window]) -> npt.NDArray[np.int64]:
    """Hash what the encoder sees of each window: its tokens, and where its second text begins."""
    seen = (np.array([len(window), window.context_at], "<i4").tobytes() + window.ids.tobytes() for window in windows)
    digests = (hashlib.sha256(content).digest()[:8] for content in seen)
    return np.frombuffer(b"".join(digests), dtype="<i8").astype(np.int64)


def _write_missing(
    request: StateRequest, folder: Path, settings: Settings, keys: npt.NDArray[np.int64], progress: Progress
) -> None:
    """Go on after the last shard that is listed."""
    recover_all(folder)
    hashes = _read_hashes(folder / UNFINISHED, settings) if (folder / UNFINISHED).exists() else {}
    shards = _plan_shards(request)
    missing = shards[len(hashes) :]
    rows = np.concatenate([rows for shard in missing for rows in shard]) if missing else np.zeros(0, np.int64)
    needed = replace(request, windows=[request.windows[row] for row in rows]).num_bytes(DTYPE)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise FolderError(
            f"{folder}: the states need {in_units(needed)} and {in_units(free)} are free; choose another folder, fewer "
            "layers, or a pooling"
        )
    write_json(folder / UNFINISHED, {**settings, "shards": hashes})
    layout = read_layout(request.encoder.tokenizer)
    with progress.bar("encode", len(request.windows)) as bar:
        bar.advance(len(request.windows) - len(rows))
        compute = partial(_compute_shard, request, keys=keys, layout=layout, bar=bar)
        try:
            for tensors in made_ahead(compute, missing):  # one shard is written while the next one is computed
                path = folder / f"states-{len(hashes):05}.safetensors"
                save_tensors(path, tensors)
                hashes[path.name] = sha256_of(path)
                write_json(folder / UNFINISHED, {**settings, "shards": hashes})
        except KeyboardInterrupt as stop:
            stop.add_note("the same command goes on after the last shard")
            raise
    rename(folder / UNFINISHED, folder / MANIFEST)


def _plan_shards(request: StateRequest) -> list[list[Rows]]:
    """Return the encoder's batches of each shard."""
    tokens = CPU_TOKENS if request.compute.device.type == "cpu" else BUILD_TOKENS
    lengths = lengths_of(request.windows)
    per_token = request.num_bytes(DTYPE) / max(1, int(lengths.sum()))
    most = min(SHARD_TOKENS, SHARD_BYTES / per_token)
    shards: list[list[Rows]] = []
    room = 0.0
    for rows in plan_in_order_of_length(lengths, tokens):
        if room <= 0:
            shards.append([])
            room = most
        shards[-1].append(rows)
        room -= int(lengths[rows].sum())
    return shards


def _compute_shard(
    request: StateRequest, shard: list[Rows], *, keys: npt.NDArray[np.int64], layout: Layout, bar: Bar
) -> dict[str, Tensor]:
    """Compute the states of a shard's windows, and say which windows they are."""
    rows = np.concatenate(shard)
    windows = [request.windows[row] for row in rows]
    lengths = request.lengths[rows]
    states = torch.empty(int(lengths.sum()), *request.shape, dtype=DTYPE)
    first = 0
    for batch in shard:
        found = without_padding(request.encode(batch), DTYPE)
        states[first : first + len(found)] = found
        first += len(found)
        bar.advance(len(batch))
    tensors = {
        "states": states,
        "example": torch.tensor([window.example for window in windows], dtype=torch.int32),
        "start": torch.from_numpy(np.cumsum(lengths) - lengths),
        "length": torch.from_numpy(lengths),
        "key": torch.from_numpy(keys[rows]),
    }
    if request.pooling is not None:
        return tensors
    ids = np.concatenate([window.ids for window in windows])
    return {**tensors, "id": torch.from_numpy(ids), "position": torch.from_numpy(_positions(windows, layout))}


def _positions(windows: Sequence[Window], layout: Layout) -> npt.NDArray[np.int32]:
    """Number all windows' tokens as those of their text, of a pair its second one; -1: no part of it."""
    lengths = lengths_of(windows)
    starts = [each.context_at if each.context_at < len(each) else len(layout.before) for each in windows]
    places = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    numbers = places - np.repeat(starts, lengths)
    is_text = (numbers >= 0) & (places < np.repeat(lengths - len(layout.after), lengths))
    firsts = np.repeat([each.first for each in windows], lengths)
    return np.where(is_text, firsts + numbers, -1).astype(np.int32)


def _read_hashes(path: Path, settings: Settings) -> dict[str, str]:
    """Return the shards of a folder with their hashes; refuse one whose settings are others."""
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("shards"), dict):
        raise FolderError(f"{path}: damaged; delete {path.parent} and extract it again")
    known = {name: content.get(name) for name in settings}
    if difference := first_difference(known, settings):
        raise FolderError(f"{path.parent}: holds other states ({difference}); extract these into another folder")
    hashes: dict[str, str] = content["shards"]
    return hashes


def _check(folder: Path, hashes: dict[str, str], progress: Progress) -> None:
    """Compare every shard with what was written; sha256 reads 1.3 GB a second and core."""
    with progress.bar("check states", len(hashes)) as bar:
        for name, expected in hashes.items():
            check_hashes(folder, {name: expected})
            bar.advance(1)


def _read_table(paths: Sequence[Path]) -> WindowTable:
    keys, shards, starts = [], [], []
    for number, path in enumerate(paths):
        with safe_open(path, framework="np") as file:
            keys.append(file.get_tensor("key"))
            starts.append(file.get_tensor("start"))
        shards.append(np.full(len(keys[-1]), number))
    return WindowTable(np.concatenate(keys), np.concatenate(shards), np.concatenate(starts))
