"""The Hugging Face hub: whether it can be asked, found out at once; no torch in here."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import NamedTuple

from bertvision.errors import BertVisionError, FolderError, reason_of

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")  # of a model
CARD = "README.md"  # a model's own page
CARD_START = 2_000_000  # characters of it in which its front matter ends; benchmarks' scores can make it long
SECONDS = 5.0  # that a hub which answers has for it
# Of models: nothing that could be unpickled or run.
MODEL_FILES = ["*.json", "*.safetensors", "*.onnx", "*.txt", "*.model", CARD]


class Snapshot(NamedTuple):
    """A folder in the hub's cache, models--OWNER--NAME/snapshots/COMMIT, whose files are links to `blobs`."""

    hub_id: str | None  # None where the folders above are named otherwise
    blobs: Path


def parse_snapshot(folder: Path) -> Snapshot | None:
    """Return what a folder of the hub's cache is, or None for any other folder."""
    snapshots = folder.parent
    repository = snapshots.parent
    if snapshots.name != "snapshots":
        return None
    kind, *names = repository.name.split("--")
    is_model = kind == "models" and len(names) == 2
    return Snapshot("/".join(names) if is_model else None, repository / "blobs")


def hub_problem() -> str | None:
    """Return why the hub cannot be asked, or None where it answers.

    huggingface_hub itself tries six times for each file of a repository: most of a minute without a network.
    """
    from huggingface_hub import constants, get_session, is_offline_mode

    if is_offline_mode():
        return "HF_HUB_OFFLINE forbids asking the hub (unset it to download)"
    unreachable = "the hub cannot be reached (HF_HUB_OFFLINE=1 uses earlier downloads without asking)"
    try:
        answer = get_session().head(constants.ENDPOINT, timeout=SECONDS)
    except Exception:  # of its HTTP library, which is another one in other versions
        return unreachable
    return unreachable if answer.status_code >= 500 else None  # a proxy that does not reach it says so


def path_of(name: str | PurePath, kind: type[BertVisionError]) -> Path:
    """Return a name as a path; refuse one that the system takes for none, such as one of 5,000 letters."""
    try:
        Path(name).exists()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise kind(f"{str(name)[:80]}...: is no place of a folder ({reason}); give a folder or a hub id") from None
    return Path(name)


def find_model_folder(model: str | PurePath) -> Path:
    """Return the path of a model; one that is no path here and looks like a hub id is downloaded first."""
    place = path_of(model, FolderError)
    hub_id = place.as_posix()  # a path's own separator is another one on Windows
    if place.exists() or place.parent.is_dir() or not HUB_ID.fullmatch(hub_id):
        return place
    try:
        return download(hub_id, MODEL_FILES)
    except FolderError as error:
        raise FolderError(f"{hub_id}: {error}; give `default` or a MODEL_DIR") from None


def download(hub_id: str, patterns: list[str]) -> Path:
    """Return the folder of a repository's files that match; without a network, as they were downloaded earlier."""
    from huggingface_hub import snapshot_download  # comes with transformers; not needed for folders

    problem = hub_problem()
    try:
        # Folders inside hold the same model for other programs.
        found = snapshot_download(
            hub_id, allow_patterns=patterns, ignore_patterns=["*/*"], local_files_only=problem is not None
        )
        return Path(found)
    except (OSError, ValueError) as error:  # all of the hub's errors are one of these
        reason = f"never downloaded, and {problem}" if problem else f"not to be had from the hub ({reason_of(error)})"
        raise FolderError(f"no such folder, {reason}") from None


def downloaded_card(hub_id: str) -> Path | None:
    """Return the model card of a repository that was downloaded earlier; None where it was not."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(hub_id, CARD)
    return Path(found) if isinstance(found, str) else None


def front_matter(card: Path) -> str:
    """Return what stands between the dashes at the head of a model card, as YAML; nothing where it is no such card."""
    if not card.is_file():
        return ""
    with card.open(encoding="utf-8", errors="replace") as file:
        head = file.read(CARD_START)
    opening, _, rest = head.partition("---\n")
    front, closing, _ = rest.partition("\n---")
    return front if closing and not opening.strip() else ""


@contextmanager
def without_hub() -> Iterator[None]:
    """Keep whatever runs in the block from asking the hub."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
