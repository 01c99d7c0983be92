"""`Difference`: how far a row's F1 lies from another's, question by question, as a line of one JSON file."""

from collections.abc import Sequence
from pathlib import Path

from bertvision.files import read_json, write_json
from bertvision.settings import Config, validate

DIFFERENCES_FILE = "differences.json"


class Apart(Config):
    """How far two rows lie apart in points of F1, the mean over seeds."""

    difference: float
    low: float  # where 95% of the differences of resampled questions lie
    high: float
    p_value: float
    by_seed: tuple[float, ...] = ()  # the difference with each seed alone; empty in older files


class Difference(Apart):
    """A paired comparison on dev at the threshold 0, every question's F1 averaged over seeds first."""

    experiment: str
    row: str  # as reports name it: a method, or method:head
    fraction: float | None
    against: str  # another row at the same fraction
    seeds: tuple[int, ...]  # that both have
    # Each row at the threshold that suits it best, in every seed and every resample anew; None where predictions lack
    # the best spans of declined questions.
    best: Apart | None = None


def write_differences(folder: Path, found: Sequence[Difference]) -> Path:
    """Write comparisons beside the records that they are about; those with other rows that are there stay."""
    path, against = folder / DIFFERENCES_FILE, {each.against for each in found}
    others = [each for each in _read(path) if each.against not in against] if path.exists() else []
    write_json(path, [each.model_dump(mode="json") for each in (*others, *found)])
    return path


def read_differences(folder: Path) -> list[Difference]:
    """Read all comparisons below a folder; there may be none."""
    return [each for path in sorted(folder.rglob(DIFFERENCES_FILE)) for each in _read(path)]


def _read(path: Path) -> list[Difference]:
    return [validate(Difference, each, str(path)) for each in read_json(path)]
