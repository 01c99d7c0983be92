"""Files and folders that are either whole or absent: written beside their place and renamed into it."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import Any

from bertvision.errors import FolderError
from bertvision.strict_json import parse_json


def write_text(path: Path, text: str) -> None:
    """Write a text file so that a reader never sees half of it."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.part")
    beside.write_bytes(content)
    os.replace(beside, path)


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
def whole_folder(path: Path) -> Iterator[Path]:
    """Return a folder to fill that takes its place at `path` when the block ends well, replacing what was there."""
    beside, before = path.with_name(f".{path.name}.part"), path.with_name(f".{path.name}.old")
    for leftover in (beside, before):  # of a run that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        yield beside
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    if path.exists():
        os.replace(path, before)
    os.replace(beside, path)
    shutil.rmtree(before, ignore_errors=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep a second process out of a folder for as long as this one works in it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            import fcntl  # not on Windows, where two processes are the user's own care
        except ImportError:
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FolderError(
                f"{folder}: another bertvision is working in it; wait for it or choose another folder"
            ) from None
        yield


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


def sha256_of(path: Path) -> str:
    """Hash a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
