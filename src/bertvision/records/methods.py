"""Records of more than one run: of its variants by method, comparisons, benchmarks, searches and pre-trainings."""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import RootModel

from bertvision.errors import FolderError
from bertvision.files import write_json
from bertvision.records.runs import (
    DataFile,
    Provenance,
    Record,
    RunRecord,
    TrainingPoint,
    read_file,
    write_file,
    write_hashed,
)
from bertvision.settings import Config

HELD_OUT = "held_out_"  # begins the name of the one score on held-out examples, the task's main one
GIVEN = -1.0  # before every fraction: an encoder that was not tuned here
_Number = TypeVar("_Number", int, float)


class Rate(NamedTuple):
    """A row's records at one rate, of all fractions, and their mean held-out score where rates are compared."""

    records: list[RunRecord]
    held_out: float | None  # None where one of the records that are compared lacks it


class Tried(NamedTuple):
    """A row of a method, with every learning rate that it was tried with."""

    row: str
    rates: list[Rate]
    fraction: float | None  # at which rates are compared: the largest that all of them have
    seeds: list[int]  # that all rates have there, over which they are compared; none: each over its own

    @property
    def best(self) -> Rate | None:
        """Return the rate with the highest held-out score; None where that of some rate is unknown."""
        scored = [(rate.held_out, rate) for rate in self.rates if rate.held_out is not None]
        return max(scored, key=lambda pair: pair[0])[1] if len(scored) == len(self.rates) else None


def merge_variants(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Return records whose variants are rows of their own, each method at its best learning rate.

    The rate is the one whose held-out score is the highest at the largest fraction: the mean over the seeds that all
    rates of the row have there, or over each rate's own where they share none. It counts at every fraction, because one
    training passes through all of them. Where nothing was held out, every rate stays as a row of its own. Records
    that are no variants come back as they are.
    """
    found = list(records)
    plain = [record for record in found if record.method is None]
    return [*plain, *(record.model_copy(update={"model": row}) for record, row in choose(found))]


def choose(records: Iterable[RunRecord]) -> list[tuple[RunRecord, str]]:
    """Return the records of variants that `merge_variants` keeps, each with the name of its row."""
    return [pair for tried in tried_rates(records) for pair in _shown(tried)]


def held_out_metric(record: RunRecord) -> str | None:
    """Return which score a record has on held-out examples: its task's main one; None where nothing was held out."""
    return next((name.removeprefix(HELD_OUT) for name in record.scores if name.startswith(HELD_OUT)), None)


def tried_rates(records: Iterable[RunRecord]) -> list[Tried]:
    """Gather the learning rates of every row of every variant."""
    variants = sorted((record for record in records if record.method is not None), key=_method_key)
    return [_tried(list(group)) for _, group in groupby(variants, key=_method_key)]


def _method_key(record: RunRecord) -> tuple[str, str, str, str]:
    return (record.experiment, record.task, record.method or "", record.model_family)


def _tried(group: Sequence[RunRecord]) -> Tried:
    by_rate: dict[tuple[str | None, str], list[RunRecord]] = {}
    for record in group:
        by_rate.setdefault((record.variant, record.model), []).append(record)
    last = max(_shared(by_rate.values(), _place), default=None)
    compared = [[each for each in records if last in (None, _place(each))] for records in by_rate.values()]
    # Often all rates were run with one seed and only the best with more: over other seeds a mean would not compare.
    seeds = _shared(compared, lambda record: record.seed)
    scores = [_held_out([each for each in records if each.seed in seeds] or records) for records in compared]
    rates = [Rate(records, score) for records, score in zip(by_rate.values(), scores, strict=True)]
    return Tried(_row_name(group[0], has_rate=False), rates, None if last == GIVEN else last, sorted(seeds))


def _shared(groups: Iterable[Sequence[RunRecord]], of: Callable[[RunRecord], _Number]) -> set[_Number]:
    return set.intersection(*({of(record) for record in records} for records in groups))


def _place(record: RunRecord) -> float:
    return GIVEN if record.fraction is None else record.fraction


def _held_out(records: Sequence[RunRecord]) -> float | None:
    found = ((record, held_out_metric(record)) for record in records)
    scores = [record.scores[f"{HELD_OUT}{metric}"] for record, metric in found if metric is not None]
    return fmean(scores) if len(scores) == len(records) else None


def _shown(tried: Tried) -> list[tuple[RunRecord, str]]:
    if tried.best is not None:
        return [(record, tried.row) for record in tried.best.records]
    several = len(tried.rates) > 1
    return [(record, _row_name(record, has_rate=several)) for rate in tried.rates for record in rate.records]


def _row_name(record: RunRecord, *, has_rate: bool) -> str:
    method, own = (record.variant, record.model) if has_rate else (record.method, record.model_family)
    return str(method) if record.kind == "encoder" else f"{method}:{own}"


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


SEARCH_FILE = "search.json"
TrialState = Literal["complete", "pruned"]


class SearchTrial(Config):
    """One point of the space that was tried."""

    number: int
    state: TrialState
    score: float | None  # the main score on held-out rows, of weights as `run` would keep them; None: it diverged
    settings: dict[str, Any]
    scores: list[float]  # after each epoch
    seconds: float  # of training, together with those of the same group
    group: int  # the first trial of those that learned from the same passes
    note: str = ""  # why it ended early


class SearchRecord(Record):
    """A search: what was asked, every trial, the best one, and how much each parameter matters."""

    experiment: str
    task: str
    target: Literal["heads", "finetune"]
    metric: str
    sampler: str
    space: dict[str, Any]
    trials: list[SearchTrial]
    best: int  # the number of a trial
    dev_scores: dict[str, float]  # of the best trial alone
    dev_reads: int  # how often the dev set was read: once, unless the search went on afterwards and found a better one
    importances: dict[str, float] = {}  # share of the variance of scores, by parameter; nothing where trials are few
    data: dict[str, DataFile]
    config: dict[str, Any]  # the experiment, with its `search`
    provenance: Provenance

    @property
    def best_trial(self) -> SearchTrial:
        """Return the best trial."""
        return next(trial for trial in self.trials if trial.number == self.best)


def write_search_record(folder: Path, record: SearchRecord) -> Path:
    """Write a search's record into its folder."""
    return write_hashed(folder / SEARCH_FILE, record)


def read_search_record(folder: Path) -> SearchRecord:
    """Read a search's record."""
    return read_file(SearchRecord, folder / SEARCH_FILE, "the record of a search")


PRETRAINING_FILE = "record.json"


class HeldOutLoss(Config):
    """What an encoder predicts in documents that it was not trained on."""

    words: float  # mean loss of a predicted word, in nats
    perplexity: float  # its exponential, as in table 6 of BERT's paper
    pairs: float | None  # mean loss of "does the second text follow"; None where that is not predicted
    pairs_accuracy: float | None  # share of the pairs


class TextSize(Config):
    """How much text there is."""

    documents: int
    tokens: int


class PretrainingRecord(Record):
    """A finished pre-training."""

    name: str
    config: dict[str, Any]
    parameters: int  # of the encoder and what predicts from it
    train: TextSize
    held_out: TextSize | None
    steps: int
    tokens: int  # that were read, special ones included
    seconds: float  # of training, evaluations not counted
    tokens_per_second: float
    operations: float  # of training, padding not counted
    peak_fraction: float | None  # None where the device's peak is not known
    loss: HeldOutLoss | None  # None where no document was held out
    training: list[TrainingPoint]  # a point's score is the held-out loss of words
    provenance: Provenance


def write_pretraining(folder: Path, record: PretrainingRecord) -> Path:
    """Write the record of a pre-training into its folder."""
    return write_hashed(folder / PRETRAINING_FILE, record)


def read_pretraining_record(folder: Path) -> PretrainingRecord:
    """Read what `write_pretraining` wrote."""
    return read_file(PretrainingRecord, folder / PRETRAINING_FILE, "a pre-training's record")
