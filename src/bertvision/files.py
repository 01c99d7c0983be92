"""The one way to write: a file or folder is whole or absent, also after a kill or a power loss.

It is written beside its place, synced, renamed into it, and the folder around it is synced. What a kill leaves beside a
place (`.<name>.bv-part`, `.<name>.bv-old`) is put right by `recover`, or by whoever writes there next. A lock file lets
one process at a time work in a folder. JSON is read so that it means one thing: no key twice in an object.
"""

import ctypes
import errno
import gzip
import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BufferedIOBase
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import IO, Any

from bertvision.errors import FolderError, LockedError

PART, OLD = ".bv-part", ".bv-old"
HERE, SWAP = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def write_text(path: Path, text: str) -> None:
    """Write a text file so that a reader never sees half of it."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file so that a reader never sees half of it."""
    with whole_file(path) as beside:
        beside.write_bytes(content)


def append_text(path: Path, text: str) -> None:
    """Add lines to a file that is read while it grows; only here may a kill leave half of one."""
    with _refusing_removed(path.parent):
        is_new = not path.exists()
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
        _sync(path, path.parent)
        if is_new:
            _sync(path.parent, path.parent)


def write_json(path: Path, content: Any) -> None:  # noqa: ANN401 (anything that JSON can hold)
    """Write JSON with a fixed layout, so that the same content gives the same bytes."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_json_rows(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with a line per key: as readable as indented JSON, and ten times as fast to write."""
    encode = json.JSONEncoder(ensure_ascii=False).encode
    write_encoded_rows(path, {key: encode(value) for key, value in content.items()})


def write_encoded_rows(path: Path, content: Mapping[str, str]) -> None:
    """Write what `write_json_rows` would, of values that are JSON already."""
    # A row at a time, because one text of 45 MB has 2 or 4 bytes for every letter as soon as one of them needs them.
    rows = (f"{encode_basestring_ascii(key)}: {value}".encode() for key, value in content.items())
    write_bytes(path, b"{\n%b\n}\n" % b",\n".join(rows))


def read_json(path: Path) -> Any:  # noqa: ANN401 (the caller checks what it is)
    """Read a JSON file that this project wrote."""
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FolderError(f"{path}: no such file; is the folder a finished one?") from None
    except ValueError as error:  # not UTF-8, or not JSON
        raise FolderError(f"{path}: damaged ({error}); delete its folder and run again") from None


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Return a path to write to; what is there when the block ends well takes its place at `path`."""
    make_folder(path.parent)
    beside = _beside(path, PART)
    with _refusing_removed(path.parent):
        try:
            yield beside
            _sync(beside, path.parent)
            rename(beside, path)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise


@contextmanager
def whole_stream(path: Path) -> Iterator[BufferedIOBase]:
    """Return a file to write to bit by bit, packed where it is called .gz; it takes its place as `whole_file` does."""
    with whole_file(path) as beside, beside.open("wb") as file:
        if path.suffix != ".gz":
            yield file
            return
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:  # no time: the same content is the same bytes
            yield packed


@contextmanager
def whole_folder(path: Path, own: Collection[str] | None = None) -> Iterator[Path]:
    """Return a folder to fill that takes its place at `path` when the block ends well, replacing what was there.

    With `own`, only what has these names is replaced; other files of the folder that was there stay.
    """
    path = path.resolve()
    recover(path)
    make_folder(path.parent)
    beside = _beside(path, PART)
    with _refusing_removed(path.parent):
        try:
            beside.mkdir()
            yield beside
            if own is not None:
                _take_over(path, beside, own)
            _sync_all(beside)
            _put(beside, path)
        finally:
            recover(path)


@contextmanager
def given_folder(path: Path, own: Collection[str] = ()) -> Iterator[Path]:
    """Return a `whole_folder` for a place that a user named: for one process at a time, and other files stay.

    `own` are the names of what this project writes there, which goes where it is not written again.
    """
    place = path.resolve()
    if place == Path.cwd() or place.is_mount():
        raise FolderError(f"{path}: cannot be replaced while it is in use; give a folder in it, such as {path / 'new'}")
    make_folder(place.parent)
    with held(_beside(place, LOCK), path), whole_folder(place, own) as beside:
        yield beside


def rename(before: Path, after: Path) -> None:
    """Rename a file or folder, replacing what had the name, and sync the folder."""
    os.replace(before, after)
    _sync(after.parent, after.parent)


def remove_file(path: Path) -> None:
    """Remove a file where there is one."""
    if path.exists():
        path.unlink()
        _sync(path.parent, path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder where there is one: renamed away first, so that a kill leaves no half of it."""
    recover(path)
    with suppress(FileNotFoundError):
        rename(path, _beside(path, PART))
    recover(path)


def remove_if_empty(path: Path) -> None:
    """Remove a folder that holds nothing."""
    with suppress(OSError):
        if path.is_dir():
            path.rmdir()


def recover(path: Path) -> None:
    """Put right what a kill left beside a place: the new content where that was whole, else the old one."""
    beside, before = _beside(path, PART), _beside(path, OLD)
    if before.exists() and not path.exists():  # killed between two renames
        rename(beside if beside.exists() else before, path)
    for leftover in (beside, before):
        _delete(leftover)


def recover_all(folder: Path, pattern: str = "**/") -> None:
    """Put right what a kill left anywhere in a folder; for one who knows that nobody else is writing there."""
    for ending in (PART, OLD):
        for leftover in list(folder.glob(f"{pattern}.*{ending}")):
            recover(leftover.with_name(leftover.name[1 : -len(ending)]))


def make_folder(path: Path) -> list[Path]:
    """Make a folder and those above it; return those that were not there, the folder itself last."""
    if path.is_dir():
        return []
    made = make_folder(path.parent)
    path.mkdir(exist_ok=True)
    _sync(path.parent, path.parent)
    return [*made, path]


@contextmanager
def locked(folder: Path, part: str = "") -> Iterator[None]:
    """Keep a second process out of a folder, or a part of it, for as long as this one works in it.

    Where that fails, folders that were made for it and are still empty go again.
    """
    made = make_folder(folder)
    try:
        with held(folder / f"{part and f'.{part}'}{LOCK}", folder):
            yield
    except BaseException:
        for each in reversed(made):
            remove_if_empty(each)
        raise


def check_folder(path: Path) -> Path:
    """Refuse a path at which there is something else than a folder."""
    there = next((place for place in (path, *path.parents) if place.exists()), path)
    if there.exists() and not there.is_dir():
        raise FolderError(f"{there}: is a file; choose another folder")
    return path


def check_file(path: Path) -> Path:
    """Refuse a path at which no file can be written."""
    if path.is_dir():
        raise FolderError(f"{path}: is a folder; give the name of a file")
    check_folder(path.parent)
    return path


def exists(source: str) -> bool:
    """Return whether there is a file or folder of this name."""
    try:
        return Path(source).exists()
    except (OSError, ValueError):  # too long for a path, or with a NUL in it
        return False


def sha256_of(path: Path) -> str:
    """Hash a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name}{ending}")


def _sync(path: Path, folder: Path) -> None:
    """Wait until a file's bytes or a folder's names are on the disk; a `folder` that is being filled waits at its end.

    On a disk where that takes 4 ms, a run of some hundred files would wait twice for most of them.
    """
    if not any(part.endswith(PART) for part in folder.parts):
        _sync_now(path)


def _sync_all(folder: Path) -> None:
    for place, _, names in os.walk(folder):
        for name in names:
            _sync_now(Path(place, name))
        _sync_now(Path(place))


def _sync_now(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # Windows opens no folders
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # what some network file systems say of folders
            raise
    finally:
        os.close(handle)


def _put(beside: Path, path: Path) -> None:
    """Rename a whole folder into its place; in one step where the system can swap two."""
    if not path.exists():
        rename(beside, path)
    elif swap(beside, path):
        _sync(path.parent, path.parent)
    else:
        os.replace(path, _beside(path, OLD))
        rename(beside, path)


def swap(one: Path, other: Path) -> bool:
    """Exchange two names in one step; return whether the system (Linux) and the file system can."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return bool(renameat2(HERE, os.fsencode(one), HERE, os.fsencode(other), SWAP) == 0)


def _take_over(old: Path, new: Path, own: Collection[str]) -> None:
    """Put other files of a folder into the one that takes its place, without a copy of their bytes where that goes."""
    for each in old.iterdir() if old.is_dir() else ():
        if each.name in own or (new / each.name).exists():
            continue
        if each.is_dir() and not each.is_symlink():
            shutil.copytree(each, new / each.name, symlinks=True, copy_function=_link)
        else:
            _link(each, new / each.name)


def _link(one: Path | str, other: Path | str) -> None:
    try:
        os.link(one, other, follow_symlinks=False)
    except OSError:
        shutil.copy2(one, other, follow_symlinks=False)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    elif path.exists():
        path.unlink(missing_ok=True)


@contextmanager
def _refusing_removed(folder: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        if folder.is_dir():
            raise
        raise removed(folder) from None


LOCK = ".bv-lock"


@contextmanager
def held(path: Path, folder: Path) -> Iterator[None]:
    """Hold a lock file, which goes with the lock; refuse to end well where it has gone, and the folder with it."""
    with _take_lock(path, folder) as file:
        try:
            yield
            if not _is_at(path, file):
                raise removed(folder)
        finally:
            if _is_at(path, file):
                path.unlink(missing_ok=True)


def removed(folder: Path) -> FolderError:
    """Return the error of a folder that has gone while it was written to."""
    return FolderError(f"{folder}: was removed while it was being written to; give the same command again")


def _take_lock(path: Path, folder: Path) -> IO[str]:
    file = path.open("w")
    try:
        import fcntl  # not on Windows, where two processes are the user's own care

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        return file
    except OSError:
        file.close()
        raise LockedError(
            f"{folder}: another bertvision is working in it; wait for it or choose another folder"
        ) from None
    if _is_at(path, file):
        return file
    file.close()  # whoever held the lock has just removed it
    return _take_lock(path, folder)


def _is_at(path: Path, file: IO[str]) -> bool:
    """Return whether an open file still has its name; numbers of inodes change on some file systems of networks."""
    return path.exists() and os.fstat(file.fileno()).st_nlink > 0


def parse_json(text: str) -> Any:  # noqa: ANN401 (the caller checks what it is)
    """Parse JSON; whatever is wrong with it is a ValueError."""
    try:
        return json.loads(text, object_pairs_hook=_without_twins)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _without_twins(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (twin, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twin[:80]!r} stands twice in one object; give it once")
    return found
