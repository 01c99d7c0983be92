"""Comparisons: `DifferenceRecord`, how far a row's main score lies from another's; `BenchRecord`, of speeds."""

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from pydantic import RootModel

from bertvision.errors import FolderError
from bertvision.files import write_json
from bertvision.records.record import Provenance, Record, read_file, write_file
from bertvision.settings import Config

DIFFERENCES_FILE = "differences.json"


class Side(Config):
    """One way of doing the work, timed once in every round."""

    name: str
    seconds: tuple[float, ...]


class Ratio(NamedTuple):
    """How many times as long one side takes as another, round by round."""

    middle: float
    lowest: float
    highest: float


class BenchRecord(Record):
    """A comparison: its sides were measured in turns, round by round, in one process, after a warm-up."""

    name: str
    variant: str  # what it was measured on, such as the encoder
    about: str
    settings: dict[str, Any]
    sides: tuple[Side, ...]
    figures: dict[str, float]  # other numbers of the comparison, by what they are
    provenance: Provenance

    def ratio(self, side: str, to: str) -> Ratio:
        """Compare two sides by the times of the same rounds."""
        by_name = {each.name: each.seconds for each in self.sides}
        ratios = [one / other for one, other in zip(by_name[side], by_name[to], strict=True)]
        return Ratio(median(ratios), min(ratios), max(ratios))


def write_bench_record(folder: Path, record: BenchRecord) -> Path:
    """Write a record into a folder."""
    return write_file(folder / f"{bench_file(record)}.json", record)


def bench_file(record: BenchRecord) -> str:
    """Name a record's file: after the comparison, what it was measured on, and the device."""
    device = re.sub(r"[^a-z0-9]+", "_", record.provenance.device.lower()).strip("_")
    return f"{record.name}-{record.variant}-{device}"


def read_bench_records(folder: Path) -> list[BenchRecord]:
    """Read every record of a folder, in a fixed order."""
    records = [read_file(BenchRecord, path, "a benchmark's record") for path in sorted(folder.glob("*.json"))]
    if not records:
        raise FolderError(f"{folder}: no records in it; `make bench` writes them")
    return records


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
    model: str  # as reports name it: a method, or method:head
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
    return read_file(DifferenceFile, path, "differences", "delete it and compare its variants again").root
