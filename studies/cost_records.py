"""`CostRecord`: what one method costs, measured in turns with others in one process."""

from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bertvision.errors import FolderError
from bertvision.records.runs import Parameters, Provenance, Record, read_file, write_file
from bertvision.settings import Config

COSTS_FOLDER = "costs"


class Spent(Config):
    """What a training takes for each window that it sees."""

    seconds: float
    data_seconds: float  # of them: making batches; 0 where that is not told apart
    joules: float | None  # of the whole device; None where it has no meter
    peak_process_bytes: int  # of the training, not for each window
    peak_device_bytes: int | None  # None where the device has no memory of its own


class Speed(Config):
    """How fast a row answers when it runs alone."""

    seconds: float  # for each window, in large batches, from tokens to logits
    latency: float  # of one window by itself: the median


class Round(Config):
    """A method's turn in one round."""

    tuning: Spent | None  # of the encoder; None where it is used as given
    heads: Spent | None  # the pass that trains all heads, the frozen encoder's part included
    rows: dict[str, Speed]


class RowSize(Config):
    """What of a row's costs is the same in every round."""

    parameters: Parameters
    ship_bytes: int  # what differs from the encoder that training started from, in float32
    operations: float  # floating-point operations for each window, counted


class Spread(NamedTuple):
    """How far rounds lie apart, as a share of their middle; None where fewer than two have it."""

    tuning: float | None  # of its seconds
    seconds: float | None  # of inference: of the row whose rounds lie farthest apart
    latency: float | None  # likewise


class CostRecord(Record):
    """One method of an experiment: its `encoder` and its heads, measured once a round."""

    experiment: str
    method: str | None  # None for an experiment without variants
    rows: dict[str, RowSize]
    rounds: tuple[Round, ...]
    num_windows: int  # of training that a round measures the tuning on
    settings: dict[str, Any]
    provenance: Provenance

    @property
    def tuning(self) -> Spent | None:
        """Return the tuning's costs in the middle of all rounds."""
        return _middle([each.tuning for each in self.rounds if each.tuning is not None])

    @property
    def heads(self) -> Spent | None:
        """Return the heads' costs in the middle of all rounds."""
        return _middle([each.heads for each in self.rounds if each.heads is not None])

    def speed(self, row: str) -> Speed | None:
        """Return a row's speed in the middle of all rounds; None for a row that is no model by itself."""
        found = [each.rows[row] for each in self.rounds if row in each.rows]
        if not found:
            return None
        return Speed(seconds=_median(found, "seconds"), latency=_median(found, "latency"))

    @property
    def spread(self) -> Spread:
        """Return how far the rounds' seconds lie apart."""
        speeds = [[each.rows[row] for each in self.rounds if row in each.rows] for row in self.rows]
        return Spread(
            tuning=_apart([each.tuning.seconds for each in self.rounds if each.tuning is not None]),
            seconds=_farthest([[speed.seconds for speed in found] for found in speeds]),
            latency=_farthest([[speed.latency for speed in found] for found in speeds]),
        )


def costs_path(out: Path, experiment: str, method: str | None) -> Path:
    """Return the path of a method's file in a run folder."""
    return out / COSTS_FOLDER / f"{method or experiment}.json"


def write_costs(out: Path, costs: CostRecord) -> None:
    """Write a method's costs into a run folder."""
    write_file(costs_path(out, costs.experiment, costs.method), costs)


def read_costs(folder: Path) -> list[CostRecord]:
    """Read all costs below a folder, in a fixed order; there may be none, and of each method one."""
    costs: list[CostRecord] = []
    paths: dict[tuple[str, str | None], Path] = {}
    for path in sorted(folder.rglob(f"{COSTS_FOLDER}/*.json")):
        found = read_method_costs(path)
        if (first := paths.setdefault((found.experiment, found.method), path)) != path:
            raise FolderError(
                f"{first} and {path}: both hold costs of `{found.method or found.experiment}` in experiment "
                f"`{found.experiment}`, expected one; report a folder that holds only one of them"
            )
        costs.append(found)
    return costs


def read_method_costs(path: Path) -> CostRecord:
    """Read one method's costs."""
    return read_file(CostRecord, path, "a method's costs", "delete it and measure again")


def _middle(found: list[Spent]) -> Spent | None:
    if not found:
        return None
    has_joules = all(each.joules is not None for each in found)
    return Spent(
        seconds=_median(found, "seconds"),
        data_seconds=_median(found, "data_seconds"),
        joules=_median(found, "joules") if has_joules else None,
        peak_process_bytes=max(each.peak_process_bytes for each in found),
        peak_device_bytes=max((each.peak_device_bytes for each in found if each.peak_device_bytes), default=None),
    )


def _farthest(rows: Iterable[list[float]]) -> float | None:
    return max((apart for values in rows if (apart := _apart(values)) is not None), default=None)


def _apart(values: list[float]) -> float | None:
    return (max(values) - min(values)) / median(values) if len(values) > 1 else None


def _median(found: Iterable[Spent | Speed], name: str) -> float:
    middle: float = median(getattr(each, name) for each in found)
    return middle
