"""What all records share: where they came from, and how their files are read and written."""

import lzma
import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ValidationError

from bertvision.errors import FolderError
from bertvision.files import read_json, write_json
from bertvision.manifest import changed_file, check_manifest
from bertvision.settings import Config
from bertvision.version import VERSION

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy")
Content = TypeVar("Content", bound=BaseModel)


class Provenance(Config):
    """Where a record came from."""

    commit: str | None  # of bertvision itself; None where it was installed without its repository
    dirty: bool | None
    device: str
    precision: str
    python: str
    versions: dict[str, str]


class Record(Config):
    """One JSON file about finished work."""

    format: Literal[1] = 1


def write_file(path: Path, record: Record) -> Path:
    """Write a record; the same record gives the same bytes."""
    write_json(path, record.model_dump(mode="json"))
    return path


def write_hashed(path: Path, record: Record) -> Path:
    """Write a record of a run folder, whose manifest keeps its hash."""
    with changed_file(path.parent, path.name, begin=True):
        return write_file(path, record)


def read_file(kind: type[Content], path: Path, what: str, advice: str = "") -> Content:
    """Read a record, or a list of them; say in one line what is wrong with a file that holds none.

    One that a manifest beside it knows has to be as it was written; records without one, such as copies, are read too.
    """
    if path.exists():
        check_manifest(path.parent, [path.name])
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise FolderError(f"{path}: no such file; is the folder a finished one?") from None
    except ValidationError as error:
        content = read_json(path)  # says what is wrong with a damaged file
        found = f" (format {content.get('format')})" if isinstance(content, dict) and "format" in content else ""
        raise FolderError(
            f"{path}: not {what} of this version{found}: {_first_problem(error)}{advice and f'; {advice}'}"
        ) from None


def read_packed(kind: type[Content], path: Path, what: str) -> list[Content]:
    """Read the records of a packed file: JSON lines, compressed by xz."""
    try:
        lines = lzma.decompress(path.read_bytes()).splitlines()
    except (lzma.LZMAError, EOFError) as error:
        raise FolderError(f"{path}: damaged ({error}), expected JSON lines packed by xz; copy it again") from None
    try:
        return [kind.model_validate_json(line) for line in lines]
    except ValidationError as error:
        raise FolderError(f"{path}: a line is not {what} of this version: {_first_problem(error)}") from None


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in problem["loc"])
    return f"`{place}`: {problem['msg']}"


def provenance(device: str, precision: str) -> Provenance:
    """Describe this machine and this code."""
    # A copy of the tree without its repository (another machine, say) is told its commit by the environment.
    given = os.environ.get("BERTVISION_COMMIT")
    commit, dirty = (given.removesuffix("-dirty"), given.endswith("-dirty")) if given else _commit()
    return Provenance(
        commit=commit,
        dirty=dirty,
        device=device,
        precision=precision,
        python=platform.python_version(),
        versions={"bertvision": VERSION, **_versions()},
    )


@cache
def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in PACKAGES}


@cache  # what a process runs is the code as it was when it began; a run writes hundreds of records
def _commit() -> tuple[str | None, bool | None]:
    here = Path(__file__).parent
    commit = _git(here, "rev-parse", "HEAD")
    tracked = _git(here, "ls-files", "--error-unmatch", __file__)
    if commit is None or tracked is None:  # installed as a wheel, or below somebody else's repository
        return None, None
    return commit, bool(_git(here, "status", "--porcelain", "--untracked-files=no"))


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
