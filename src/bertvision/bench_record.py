"""`BenchRecord`: one comparison of speeds as one JSON file, with where it was measured."""

import re
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from bertvision.errors import FolderError
from bertvision.files import read_json, write_json
from bertvision.records import Provenance
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


class BenchRecord(Config):
    """A comparison: its sides were measured in turns, round by round, in one process, after a warm-up."""

    format: Literal[1] = 1
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
    """Write a record into a folder, under the comparison's name, what it was measured on, and the device."""
    device = re.sub(r"[^a-z0-9]+", "_", record.provenance.device.lower()).strip("_")
    path = folder / f"{record.name}-{record.variant}-{device}.json"
    write_json(path, record.model_dump(mode="json"))
    return path


def read_bench_records(folder: Path) -> list[BenchRecord]:
    """Read every record of a folder, in a fixed order."""
    records = []
    for path in sorted(folder.glob("*.json")):
        read_json(path)  # says what is wrong with a damaged file
        try:
            records.append(BenchRecord.model_validate_json(path.read_bytes()))
        except ValidationError as error:
            raise FolderError(f"{path}: not a benchmark's record: {error.errors()[0]['msg']}") from None
    if not records:
        raise FolderError(f"{folder}: no records in it; `make bench` writes them")
    return records
