"""What a folder is checked for before it is read: hashes of what was written into it, and no links to places outside.

Hashes are of whatever a later step trusts: weights, tokenizers, calibrations, progress, corpora, predictions, records.
A hash beside a file finds damage, not an attacker, who would write both.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bertvision.errors import FolderError
from bertvision.files import read_json, sha256_of, write_json
from bertvision.hub import parse_snapshot

MANIFEST = "sha256.json"
EDITABLE = ("README.md", "config.json", "model.json")  # settings that a person may change, and that are validated
OUTSIDE = "which lies outside its folder; if you trust that, say `allow_outside=True`"


def write_manifest(folder: Path, leave_out: Collection[str] = (), editable: Collection[str] = EDITABLE) -> None:
    """Write down the hashes of a folder's files, settings that a person may change aside."""
    others = (MANIFEST, *editable, *leave_out)
    paths = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name not in others]
    _write(folder, {path.name: sha256_of(path) for path in paths})


def check_manifest(folder: Path, names: Collection[str] | None = None) -> None:
    """Refuse files, by default all, that are not as they were written; a folder without a manifest may be anything."""
    hashes = _read(folder)
    check_hashes(folder, {name: found for name, found in hashes.items() if names is None or name in names})


@contextmanager
def changed_file(folder: Path, name: str, *, begin: bool = False) -> Iterator[None]:
    """Let one file of a folder be written anew; at no moment is it another than the one that the manifest knows.

    A folder without a manifest stays so, unless this is to `begin` one.
    """
    hashes = _read(folder)
    if name in hashes:
        _write(folder, {other: found for other, found in hashes.items() if other != name})
    yield
    if hashes or begin:
        _write(folder, {**hashes, name: sha256_of(folder / name)})


def is_hashed(path: Path) -> bool:
    """Return whether a file is there and its folder's manifest knows it."""
    return path.exists() and path.name in _read(path.parent)


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


def check_links(folder: Path) -> None:
    """Refuse a folder with a link that leads out of it, or with what is no file and could hang who reads it."""
    own = folder.resolve()
    snapshot = parse_snapshot(own)
    allowed = (own,) if snapshot is None else (own, snapshot.blobs)
    for path in folder.iterdir():
        place = path.resolve()
        if not any(place.is_relative_to(each) for each in allowed):
            raise FolderError(f"{path}: is a link to {place}, {OUTSIDE}")
        if path.exists() and not path.is_file() and not path.is_dir():
            raise FolderError(f"{path}: is neither a file nor a folder; delete it")
