"""`DifferenceRecord`: how far a row's main score lies from another's; one file holds several."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import RootModel

from bertvision.files import write_json
from bertvision.records.record import read_file
from bertvision.settings import Config

DIFFERENCES_FILE = "differences.json"


class Apart(Config):
    """How far two rows lie apart in points of a score, the mean over seeds."""

    difference: float
    low: float  # where 95% of the differences lie in resamples
    high: float
    p_value: float
    by_seed: tuple[float, ...]  # the difference with each seed alone


class DifferenceRecord(Apart):
    """A paired comparison on dev, of questions at the threshold 0, the mean over seeds."""

    experiment: str
    row: str  # as reports name it: a method, or method:head
    fraction: float | None
    against: str  # another row at the same fraction
    seeds: tuple[int, ...]  # that both have
    metric: str = "f1"  # the task's main score
    example: str = "question"  # what dev is made of
    # What is drawn with replacement: examples, or articles or documents of them; and seeds, where there are several.
    resampled: tuple[str, ...] = ("question",)
    # Each row at the threshold that suits it best, in every seed and every resample anew; None where predictions lack
    # the best spans of questions without an answer.
    best: Apart | None = None


class DifferenceFile(RootModel[list[DifferenceRecord]]):
    """All comparisons of a run folder."""


def write_differences(folder: Path, found: Sequence[DifferenceRecord]) -> Path:
    """Write comparisons beside the records that they are about; those with other rows that are there stay."""
    path, against = folder / DIFFERENCES_FILE, {each.against for each in found}
    others = [each for each in _read(path) if each.against not in against] if path.exists() else []
    write_json(path, [each.model_dump(mode="json") for each in (*others, *found)])
    return path


def read_differences(folder: Path) -> list[DifferenceRecord]:
    """Read all comparisons below a folder; there may be none."""
    return [each for path in sorted(folder.rglob(DIFFERENCES_FILE)) for each in _read(path)]


def _read(path: Path) -> list[DifferenceRecord]:
    return read_file(DifferenceFile, path, "differences", "delete it and run `bertvision compare-methods`").root
