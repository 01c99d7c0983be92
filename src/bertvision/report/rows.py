"""Records -> the rows of a table: one per (experiment, fraction, share of the data, model), with the seeds averaged."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

from bertvision.errors import FolderError
from bertvision.records import RowKind, RunRecord, State, fraction_name, in_order


class Statistic(NamedTuple):
    """A mean over seeds, and their standard deviation (of a sample: n - 1) where there are several."""

    mean: float
    deviation: float | None


@dataclass(frozen=True)
class Row:
    """One model of one fraction; a score that no record has is absent."""

    experiment: str
    fraction: float | None
    name: str
    kind: RowKind
    data: float  # share of the training data that heads were trained on
    records: tuple[RunRecord, ...]  # a seed each
    parameters: int  # trainable
    share: float | None  # trainable parameters in percent of the encoder's; None where there is no encoder
    scores: dict[str, Statistic]
    seconds: float  # of training until the row exists
    inference_seconds: float  # over dev
    layer_weights: tuple[Statistic, ...] | None

    @property
    def weighed_states(self) -> Sequence[State]:
        """Return which states the layer weights are of."""
        return self.records[0].weighed_states or range(len(self.layer_weights or ()))

    @property
    def seeds(self) -> int:
        """Count the seeds."""
        return len(self.records)

    @property
    def place(self) -> float:
        """Give the fraction as a number: an encoder used as given was tuned for nothing."""
        return 0.0 if self.fraction is None else self.fraction

    @property
    def fraction_text(self) -> str:
        """Write the fraction as it stands in tables; a baseline has none."""
        return "" if self.kind == "baseline" else fraction_name(self.fraction)


def table_rows(records: Iterable[RunRecord]) -> list[Row]:
    """Average the records over seeds, in the order of `bertvision.records.in_order`, the least data first."""
    groups: dict[tuple[str, str, float | None, float, str], list[RunRecord]] = {}
    for record in in_order(sorted(records, key=data_share)):
        key = (record.experiment, record.task, record.fraction, data_share(record), record.row)
        groups.setdefault(key, []).append(record)
    return [_row(group) for group in groups.values()]


def full_rows(records: Iterable[RunRecord]) -> list[Row]:
    """Keep those rows whose heads were trained on the largest share of the data among them."""
    rows = table_rows(records)
    largest = max((row.data for row in rows), default=1.0)
    return [row for row in rows if row.data == largest]


def largest_fraction(rows: Sequence[Row]) -> list[Row]:
    """Keep the rows of the largest fraction among them."""
    largest = max((row.place for row in rows), default=None)
    return [row for row in rows if row.place == largest]


def trained(rows: Sequence[Row]) -> list[Row]:
    """Keep the rows of models: all but baselines."""
    return [row for row in rows if row.kind != "baseline"]


def by_experiment(records: Iterable[RunRecord]) -> dict[str, list[RunRecord]]:
    """Split records by the name of their experiment, and by task where experiments of several have the same name."""
    ordered = in_order(records)
    tasks = {
        name: {each.task for each in ordered if each.experiment == name}
        for name in {each.experiment for each in ordered}
    }
    groups: dict[str, list[RunRecord]] = {}
    for record in ordered:
        several = len(tasks[record.experiment]) > 1
        groups.setdefault(f"{record.experiment}, {record.task}" if several else record.experiment, []).append(record)
    return groups


def data_share(record: RunRecord) -> float:
    """Give the share of the training data that an experiment's heads were trained on."""
    return float(record.config.get("heads", {}).get("share", 1.0))


def training_seconds(record: RunRecord) -> float:
    """Add up the training until a row exists: the fine-tuning, and the pass that all heads shared."""
    return record.seconds.finetune + (record.seconds.heads or 0.0)


def inference_seconds(record: RunRecord) -> float:
    """Give the seconds that a row takes for dev: alone where that was measured, or the pass that all rows shared."""
    alone = record.efficiency.inference if record.efficiency is not None else None
    return record.seconds.predict if alone is None else alone.seconds


def statistic(values: Sequence[float]) -> Statistic | None:
    """Give the mean and deviation of one value per seed; None of nothing."""
    if not values:
        return None
    return Statistic(fmean(values), stdev(values) if len(values) > 1 else None)


def _row(group: Sequence[RunRecord]) -> Row:
    _check_seeds(group)
    first = group[0]
    encoder = first.parameters.encoder
    return Row(
        experiment=first.experiment,
        fraction=first.fraction,
        name=first.row,
        kind=first.kind,
        data=data_share(first),
        records=tuple(group),
        parameters=first.parameters.trainable,
        share=100 * first.parameters.trainable / encoder if encoder else None,
        scores=_scores(group),
        seconds=fmean(training_seconds(record) for record in group),
        inference_seconds=fmean(map(inference_seconds, group)),
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


def _scores(group: Sequence[RunRecord]) -> dict[str, Statistic]:
    keys = dict.fromkeys(key for record in group for key in record.scores)
    found = {key: statistic([record.scores[key] for record in group if key in record.scores]) for key in keys}
    return {key: score for key, score in found.items() if score is not None}


def _layer_weights(group: Sequence[RunRecord]) -> tuple[Statistic, ...] | None:
    stacks = [record.layer_weights for record in group if record.layer_weights]
    statistics = [statistic(weights) for weights in zip(*stacks, strict=True)]
    return tuple(found for found in statistics if found is not None) or None
