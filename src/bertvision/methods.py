"""Records of variants -> rows of one experiment, each method at its best learning rate."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import fmean

from bertvision.records import RunRecord
from bertvision.settings import RATE

HELD_OUT = "held_out_f1"


def merge_variants(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Give variants their experiment's name and rows of their own, each method at its best learning rate.

    The rate is the one whose held-out F1, the mean over seeds, is the highest; where nothing was held out, every rate
    stays as a row of its own. Records that are no variants come back as they are.
    """
    found = list(records)
    plain = [record for record in found if method_of(record) is None]
    named = [record.model_copy(update={"experiment": group_of(record), "row": row}) for record, row in choose(found)]
    return [*plain, *named]


def choose(records: Iterable[RunRecord]) -> list[tuple[RunRecord, str]]:
    """Give the records of variants that `merge_variants` keeps, each with the name of its row."""
    variants = sorted((record for record in records if method_of(record) is not None), key=_method_key)
    chosen = [each for _, group in groupby(variants, key=_method_key) for each in _best_rate(list(group))]
    return [(record, _row_name(record, has_rate)) for record, has_rate in chosen]


def group_of(record: RunRecord) -> str:
    """Name the experiment that a record's variant belongs to."""
    variant = record.config.get("variant")
    return record.experiment if variant is None else record.experiment.removesuffix(f"-{variant}")


def method_of(record: RunRecord) -> str | None:
    """Name a record's variant without its learning rate; None where the experiment has no variants."""
    variant: str | None = record.config.get("variant")
    return None if variant is None else variant.partition(RATE)[0]


def row_of(record: RunRecord) -> str:
    """Name a row without its head's learning rate (`heads.settings`)."""
    return record.row.partition(RATE)[0] if record.kind in ("head", "control") else record.row


def _method_key(record: RunRecord) -> tuple[str, str, str, float, str]:
    fraction = -1.0 if record.fraction is None else record.fraction
    return (group_of(record), record.task, method_of(record) or "", fraction, row_of(record))


def _best_rate(group: Sequence[RunRecord]) -> list[tuple[RunRecord, bool]]:
    """Choose among one row's learning rates; the second value tells whether its name has to tell the rate."""
    by_rate: dict[tuple[str | None, str], list[RunRecord]] = {}
    for record in group:
        by_rate.setdefault((record.config.get("variant"), record.row), []).append(record)
    if len(by_rate) == 1 or not all(HELD_OUT in record.scores for record in group):
        return [(record, len(by_rate) > 1) for record in group]
    best = max(by_rate.values(), key=lambda each: fmean(record.scores[HELD_OUT] for record in each))
    return [(record, False) for record in best]


def _row_name(record: RunRecord, has_rate: bool) -> str:
    method = record.config["variant"] if has_rate else method_of(record)
    own = record.row if has_rate else row_of(record)
    return str(method) if record.kind == "encoder" else f"{method}:{own}"
