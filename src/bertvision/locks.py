"""A lock file, which lets one process at a time work in a folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bertvision.errors import FolderError, LockedError

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
