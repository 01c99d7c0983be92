"""A folder's hashes: what was written into it, checked when it is read.

Of weights, tokenizers, calibrations and progress, in which a flipped bit would change results without a word.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bertvision.errors import FolderError
from bertvision.files import read_json, sha256_of, write_json

MANIFEST = "sha256.json"
EDITABLE = ("README.md", "config.json", "model.json")  # settings that a person may change, and that are validated


def write_manifest(folder: Path, leave_out: Collection[str] = ()) -> None:
    """Write down the hashes of a folder's files, settings that a person may change aside."""
    others = (MANIFEST, *EDITABLE, *leave_out)
    paths = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name not in others]
    _write(folder, {path.name: sha256_of(path) for path in paths})


def check_manifest(folder: Path, names: Collection[str] | None = None) -> None:
    """Refuse files, by default all, that are not as they were written; a folder without a manifest may be anything."""
    hashes = _read(folder)
    check_hashes(folder, {name: found for name, found in hashes.items() if names is None or name in names})


@contextmanager
def changed_file(folder: Path, name: str) -> Iterator[None]:
    """Let one file of a folder be written anew; at no moment is it another than the one that the manifest knows."""
    hashes = _read(folder)
    if hashes:
        _write(folder, {other: found for other, found in hashes.items() if other != name})
    yield
    if hashes:
        _write(folder, {**hashes, name: sha256_of(folder / name)})


def check_hashes(folder: Path, hashes: Mapping[str, str]) -> None:
    """Refuse files whose bytes are not those that were hashed."""
    cure = f"put it back from a copy, or delete {folder} and make it again"
    if folder.is_relative_to(Path(__file__).parent):
        cure = "install bertvision again"
    for name, expected in hashes.items():
        path = folder / Path(name).name  # a manifest speaks of its own folder alone
        if not path.is_file():
            raise FolderError(f"{path}: is missing; {cure}")
        if (found := sha256_of(path)) != expected:
            raise FolderError(f"{path}: damaged (sha256 {found[:12]}, expected {str(expected)[:12]}); {cure}")


def _read(folder: Path) -> dict[str, str]:
    if not (folder / MANIFEST).is_file():
        return {}
    content = read_json(folder / MANIFEST)
    hashes = content.get("sha256") if isinstance(content, dict) else None
    if not isinstance(hashes, dict):
        raise FolderError(
            f"{folder / MANIFEST}: damaged; put it back from a copy, or delete {folder} and make it again"
        )
    return hashes


def _write(folder: Path, hashes: Mapping[str, str]) -> None:
    write_json(folder / MANIFEST, {"format": 1, "sha256": dict(sorted(hashes.items()))})
