"""Records of variants -> one row for each method, at its best learning rate."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from statistics import fmean
from typing import NamedTuple, TypeVar

from bertvision.records.runs import RunRecord

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
