"""Records -> results: one per (experiment, fraction, share of the data, model), with the seeds averaged."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from bertvision.errors import FolderError
from bertvision.records import DifferenceRecord, ResultKind, RunRecord, State, fraction_name, in_order
from bertvision.tables import Alignment, Cell, Column, Statistic, Table, statistic


@dataclass(frozen=True)
class Result:
    """One model of one fraction, a line in a report; a score that no record has is absent."""

    experiment: str
    fraction: float | None
    name: str
    kind: ResultKind
    data: float  # share of the training data that heads were trained on
    records: tuple[RunRecord, ...]  # a seed each
    parameters: int  # trainable
    share: float | None  # trainable parameters in percent of the encoder's; None where there is no encoder
    scores: dict[str, Statistic]
    seconds: float  # of training until the model exists
    inference_seconds: float  # over dev
    layer_weights: tuple[Statistic, ...] | None

    @property
    def weighted_states(self) -> Sequence[State]:
        """Return which states the layer weights are of."""
        return self.records[0].weighted_states or range(len(self.layer_weights or ()))

    @property
    def seeds(self) -> int:
        """Count the seeds."""
        return len(self.records)

    @property
    def place(self) -> float:
        """Return the fraction as a number: an encoder used as given was tuned for nothing."""
        return 0.0 if self.fraction is None else self.fraction

    @property
    def fraction_text(self) -> str:
        """Write the fraction as it stands in tables; a baseline has none."""
        return "" if self.kind == "baseline" else fraction_name(self.fraction)


class ResultColumn(NamedTuple):
    """A column of a table with a result in every row."""

    head: str
    cell: Callable[[Result], Cell]
    meaning: str = ""
    alignment: Alignment = "right"
    is_shown: Callable[[Sequence[Result]], bool] = lambda results: True
    short: str | None = None  # head on a terminal; None: not shown there


class Evidence(NamedTuple):
    """What one experiment's tables are drawn from."""

    records: Sequence[RunRecord]  # each method at its best learning rate
    tried: Sequence[RunRecord] = ()  # with every rate
    differences: Sequence[DifferenceRecord] = ()


def result_table(title: str, columns: Sequence[ResultColumn], results: Sequence[Result], note: str = "") -> Table:
    """Lay out results, one in every row, in those columns that are shown with them."""
    shown = [column for column in columns if column.is_shown(results)]
    return Table(
        title=title,
        columns=tuple(Column(column.head, column.alignment, column.meaning) for column in shown),
        rows=tuple(tuple(column.cell(result) for column in shown) for result in results),
        note=note,
    )


def results_of(records: Iterable[RunRecord]) -> list[Result]:
    """Average the records over seeds, in the order of `bertvision.records.in_order`, the least data first."""
    groups: dict[tuple[str, str, float | None, float, str], list[RunRecord]] = {}
    for record in in_order(sorted(records, key=data_share)):
        key = (record.experiment, record.task, record.fraction, data_share(record), record.model)
        groups.setdefault(key, []).append(record)
    return [_result(group) for group in groups.values()]


def full_results(records: Iterable[RunRecord]) -> list[Result]:
    """Keep those results whose heads were trained on the largest share of the data among them."""
    results = results_of(records)
    largest = max((result.data for result in results), default=1.0)
    return [result for result in results if result.data == largest]


def largest_fraction(results: Sequence[Result]) -> list[Result]:
    """Keep the results of the largest fraction among them."""
    largest = max((result.place for result in results), default=None)
    return [result for result in results if result.place == largest]


def trained(results: Sequence[Result]) -> list[Result]:
    """Keep the results of models: all but baselines."""
    return [result for result in results if result.kind != "baseline"]


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
    """Return the share of the training data that an experiment's heads were trained on."""
    return float(record.config["heads"]["data_fraction"])


def training_seconds(record: RunRecord) -> float:
    """Return the seconds of training until a model exists: the fine-tuning, and the pass that all heads shared."""
    return record.seconds.finetune + (record.seconds.heads or 0.0)


def inference_seconds(record: RunRecord) -> float:
    """Return the seconds that a model takes for dev: alone where that was measured, or in the pass that all shared."""
    alone = record.efficiency.inference if record.efficiency is not None else None
    return record.seconds.predict if alone is None else alone.seconds


def mean_interval(result: Result, key: str) -> tuple[float, float] | None:
    """Return a score's 95% interval, its bounds averaged over seeds; None where a seed has none."""
    bounds = [record.intervals[key] for record in result.records if key in record.intervals]
    if len(bounds) < result.seeds:
        return None
    return fmean(low for low, _ in bounds), fmean(high for _, high in bounds)


def _result(group: Sequence[RunRecord]) -> Result:
    _check_seeds(group)
    first = group[0]
    encoder = first.parameters.encoder
    return Result(
        experiment=first.experiment,
        fraction=first.fraction,
        name=first.model,
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
                f"{seeds.count(seed)} records of `{first.model}` at fraction {fraction_name(first.fraction)} with seed "
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
