"""`BenchRecord`: one comparison of speeds."""

import re
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bertvision.errors import FolderError
from bertvision.records.record import Provenance, Record, read_file, write_file
from bertvision.settings import Config


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
