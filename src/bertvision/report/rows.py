"""Records -> the rows of a table: one per (experiment, fraction, model), with the seeds averaged."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

from bertvision.errors import FolderError
from bertvision.records import RowKind, RunRecord, fraction_name, in_order


class Statistic(NamedTuple):
    """A mean over seeds, and their standard deviation (of a sample: n - 1) where there are several."""

    mean: float
    deviation: float | None


@dataclass(frozen=True)
class Row:
    """One model of one fraction; a score that no record has is None."""

    experiment: str
    fraction: float | None
    name: str
    kind: RowKind
    seeds: int
    parameters: int  # trainable
    share: float  # trainable parameters in percent of the encoder's
    exact: Statistic | None
    f1: Statistic | None
    best_exact: Statistic | None
    best_f1: Statistic | None
    span_f1: Statistic | None
    seconds: float  # of training until the row exists
    layer_weights: tuple[Statistic, ...] | None


def table_rows(records: Iterable[RunRecord]) -> list[Row]:
    """Average the records over seeds, in the order of `bertvision.records.in_order`."""
    groups: dict[tuple[str, float | None, str], list[RunRecord]] = {}
    for record in in_order(records):
        groups.setdefault((record.experiment, record.fraction, record.row), []).append(record)
    return [_row(group) for group in groups.values()]


def by_experiment(records: Iterable[RunRecord]) -> dict[str, list[RunRecord]]:
    """Split records by the name of their experiment."""
    groups: dict[str, list[RunRecord]] = {}
    for record in in_order(records):
        groups.setdefault(record.experiment, []).append(record)
    return groups


def training_seconds(record: RunRecord) -> float:
    """Add up the training until a row exists: the fine-tuning, and the pass that all heads shared."""
    return record.seconds.finetune + (record.seconds.heads or 0.0)


def _row(group: Sequence[RunRecord]) -> Row:
    _check_seeds(group)
    first = group[0]
    return Row(
        experiment=first.experiment,
        fraction=first.fraction,
        name=first.row,
        kind=first.kind,
        seeds=len(group),
        parameters=first.parameters.trainable,
        share=100 * first.parameters.trainable / first.parameters.encoder,
        exact=_score(group, "exact", "exact_match"),  # squad2 and squad1 name it differently
        f1=_score(group, "f1"),
        best_exact=_score(group, "best_exact"),
        best_f1=_score(group, "best_f1"),
        span_f1=_score(group, "best_span_HasAns_f1"),
        seconds=fmean(training_seconds(record) for record in group),
        layer_weights=_layer_weights(group),
    )


def _check_seeds(group: Sequence[RunRecord]) -> None:
    seeds = [record.seed for record in group]
    for seed in seeds:
        if seeds.count(seed) > 1:
            first = group[0]
            raise FolderError(
                f"{seeds.count(seed)} records of `{first.row}` at fraction {fraction_name(first.fraction)} with seed "
                f"{seed} in experiment `{first.experiment}`, expected one; report one run's folder at a time, or give "
                "each experiment its own name"
            )


def _score(group: Sequence[RunRecord], *keys: str) -> Statistic | None:
    return _statistic([record.scores[key] for record in group for key in keys if key in record.scores])


def _layer_weights(group: Sequence[RunRecord]) -> tuple[Statistic, ...] | None:
    stacks = [record.layer_weights for record in group if record.layer_weights]
    statistics = [_statistic(weights) for weights in zip(*stacks, strict=True)]
    return tuple(statistic for statistic in statistics if statistic is not None) or None


def _statistic(values: Sequence[float]) -> Statistic | None:
    if not values:
        return None
    return Statistic(fmean(values), stdev(values) if len(values) > 1 else None)
