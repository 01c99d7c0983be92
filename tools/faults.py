"""Lets something happen before any single file operation of a process, and looks at what it did in which order.

A kill is an exception that all later file operations raise again, so that nothing is tidied up, as after SIGKILL.
"""

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

TIMES = ("seconds", "costs", "efficiency")  # what differs between two runs of one experiment
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class KilledError(BaseException):
    """The process is no more."""


class Operation(NamedTuple):
    """One file operation: open (for writing), write, fsync, mkdir, link, rename, swap, remove or rmdir."""

    what: str
    path: Path
    other: Path | None = None  # the new name of what is renamed


Fault = Callable[[Operation], None]


def killed(operation: Operation) -> None:
    """End the process; what was not synced may be there by half, and what was synced before is."""
    if operation.what == "fsync" and operation.path.is_file():
        synced = _watch.synced.get(operation.path, 0) if _watch is not None else 0
        os.truncate(operation.path, (synced + operation.path.stat().st_size) // 2)
    raise KilledError


def disk_full(operation: Operation) -> None:
    """Refuse whatever needs room."""
    if operation.what in ("open", "write", "fsync", "mkdir"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(operation.path))


class Watch:
    """The file operations below a folder; from number `at` (from 0) on, a fault happens before each of them."""

    def __init__(self, root: Path, at: int | None, fault: Fault) -> None:
        self.root, self.at, self.fault = root.resolve(), at, fault
        self.operations: list[Operation] = []
        self.synced: dict[Path, int] = {}  # bytes of files that were synced, by where they are now
        self._is_in_fault = False

    def note(self, what: str, path: Path, other: Path | None = None) -> None:
        """Note an operation that is about to be done."""
        operation = Operation(what, Path(os.path.abspath(path)), other and Path(os.path.abspath(other)))
        if self._is_in_fault or not operation.path.is_relative_to(self.root):
            return
        self.operations.append(operation)
        if self.at is not None and len(self.operations) > self.at:
            self._is_in_fault = True
            try:
                self.fault(operation)
            finally:
                self._is_in_fault = False
        if what == "fsync" and operation.path.is_file():
            self.synced[operation.path] = operation.path.stat().st_size
        elif what == "rename" and operation.other is not None:
            self.synced[operation.other] = self.synced.pop(operation.path, 0)


_watch: Watch | None = None
_is_hooked = False


@contextmanager
def watched(root: Path, at: int | None = None, fault: Fault = killed) -> Iterator[Watch]:
    """Watch all file operations of Python, and those of safetensors, below a folder."""
    global _watch, _is_hooked
    if not _is_hooked:  # for good: Python removes no hook
        sys.addaudithook(_hear)
        _is_hooked = True
    with mock.patch("os.fsync", _fsync), _noting_swaps(), _noting_tensors():
        _watch = found = Watch(root, at, fault)
        try:
            yield found
        finally:
            _watch = None


def was_killed(root: Path, action: Callable[[], Any], at: int) -> bool:
    """Do something that ends before an operation; return whether it had as many."""
    try:
        with watched(root, at):
            action()
    except KilledError:
        return True
    return False


def content_of(folder: Path) -> dict[str, Any]:
    """Return what every file and folder holds, times aside."""
    return {path.relative_to(folder).as_posix(): _content(path) for path in sorted(folder.rglob("*"))}


def unsafe_renames(operations: list[Operation]) -> list[Operation]:
    """Return the renames of something unsynced, and those whose folder is not synced before the next rename."""
    unsynced: set[Path] = set()
    pending: list[Operation] = []
    unsafe = []
    for each in operations:
        if each.what in ("open", "write", "mkdir", "link"):
            unsynced.add(each.path)
        elif each.what in ("remove", "rmdir"):
            unsynced.discard(each.path)
        elif each.what == "rename" and _is_in_part(each) and each.path in unsynced and each.other is not None:
            unsynced = unsynced - {each.path} | {each.other}
        elif each.what == "fsync":
            unsynced.discard(each.path)
            pending = [rename for rename in pending if (rename.other or rename.path).parent != each.path]
        elif each.what in ("rename", "swap") and not _is_in_part(each):
            unsafe += [each] if any(path.is_relative_to(each.path) for path in unsynced) else []
            unsafe += [rename for rename in pending if rename not in unsafe and not _is_followed(rename, each)]
            pending.append(each)
    return unsafe + pending


def _is_in_part(rename: Operation) -> bool:
    """Return whether a file gets its name in a folder that has not got its own yet, and is synced as a whole."""
    return any(part.endswith(".bv-part") for part in rename.path.parent.parts)


def _is_followed(first: Operation, second: Operation) -> bool:
    """Return whether two renames are halves of one, synced together: a folder away, and another to its place."""
    return first.path == second.other


def _content(path: Path) -> Any:  # noqa: ANN401 (bytes, or what JSON holds)
    if path.is_dir():
        return None
    if path.name == "sha256.json":  # hashes of files with times in them
        return sorted(json.loads(path.read_bytes())["sha256"])
    if path.suffix == ".jsonl":  # a stage that is made again puts its lines at the end
        return sorted(json.dumps(_timeless(json.loads(line))) for line in path.read_bytes().splitlines())
    return _timeless(json.loads(path.read_bytes())) if path.suffix == ".json" else path.read_bytes()


def _timeless(content: Any) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(content, dict):
        return {key: _timeless(value) for key, value in content.items() if key not in TIMES}
    return [_timeless(each) for each in content] if isinstance(content, list) else content


def _hear(event: str, given: tuple[Any, ...]) -> None:
    if _watch is None or isinstance(given[0] if given else 0, int):
        return
    match event:
        case "open":
            if given[2] & WRITING:
                _watch.note("open", Path(os.fsdecode(given[0])))
        case "os.rename" | "os.link":
            one, other = _place(given[0], given[2]), _place(given[1], given[3])
            _watch.note("link", other) if event == "os.link" else _watch.note("rename", one, other)
        case "os.mkdir" | "os.remove" | "os.rmdir":
            _watch.note(event.removeprefix("os."), _place(given[0], given[-1]))


def _place(path: str | bytes, folder: int) -> Path:
    """Return a path whole, also where it is relative to an open folder."""
    name = os.fsdecode(path)
    return Path(name) if folder < 0 else Path(os.readlink(f"/proc/self/fd/{folder}"), name)


def _fsync(handle: int) -> None:
    """Note what would be synced; the machine of a test does not lose its power."""
    if _watch is not None:
        _watch.note("fsync", Path(os.readlink(f"/proc/self/fd/{handle}")))


@contextmanager
def _noting_swaps() -> Iterator[None]:
    from bertvision import files

    real = files.swap

    def swap(one: Path, other: Path) -> bool:
        if _watch is not None:
            _watch.note("swap", one, other)
        done = real(one, other)
        if _watch is not None and not done:
            _watch.operations.pop()
        return done

    with mock.patch.object(files, "swap", swap):
        yield


@contextmanager
def _noting_tensors() -> Iterator[None]:
    import safetensors.numpy
    import safetensors.torch

    real = safetensors.torch.serialize_file

    def serialize(tensors: Any, path: Any, **more: Any) -> None:  # noqa: ANN401 (safetensors')
        if _watch is not None:
            _watch.note("write", Path(path))
        real(tensors, path, **more)

    with (
        mock.patch.object(safetensors.torch, "serialize_file", serialize),
        mock.patch.object(safetensors.numpy, "serialize_file", serialize),
    ):
        yield
