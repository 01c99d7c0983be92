"""What a model folder may lead to: itself, the encoders of its run, and `default`."""

from pathlib import Path

from bertvision.errors import FolderError

OUTSIDE = "which lies outside its folder; if you trust that, say --allow-outside (in Python allow_outside=True)"


def check_links(folder: Path) -> None:
    """Refuse a folder with a link that leads out of it, or with what is no file and could hang who reads it."""
    own = folder.resolve()
    # The hub's downloads are links to blobs beside their snapshots.
    allowed = (own, own.parent.parent / "blobs") if own.parent.name == "snapshots" else (own,)
    for path in folder.iterdir():
        place = path.resolve()
        if not any(place.is_relative_to(each) for each in allowed):
            raise FolderError(f"{path}: is a link to {place}, {OUTSIDE}")
        if path.exists() and not path.is_file() and not path.is_dir():
            raise FolderError(f"{path}: is neither a file nor a folder; delete it")


def is_inside(place: Path, folder: Path) -> bool:
    """Return whether a model's encoder lies in its own folder or, for OUT/heads/FRACTION/HEAD, in OUT/encoder."""
    own, resolved = folder.resolve(), place.resolve()
    if resolved.is_relative_to(own):
        return True
    return own.parent.parent.name == "heads" and resolved.parent == own.parent.parent.parent / "encoder"
