"""Two prediction files or folders and a gold file -> how the models differ; needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from bertvision.analysis.disagreements import Outcomes, outcome_section
from bertvision.data.example import Question
from bertvision.data.held_out import cluster_of
from bertvision.errors import DataError, SettingsError
from bertvision.evaluate.golds import find_asked
from bertvision.kinds.kind import Golds, Kind
from bertvision.metrics.resampling import Draw, Paired, interval_of, mcnemar_p_value
from bertvision.metrics.scores import OWN_UNIT
from bertvision.settings import Settings
from bertvision.tables import Page, Table, figure, number_cell, p_cell
from bertvision.tasks import TASKS

Choice = TypeVar("Choice")
UNITS = {"question": "question", "article": "article"}
P_VALUE = "p: twice the smaller share of resampled differences at or beyond 0."


class CompareConfig(NamedTuple):
    """What is compared and how."""

    metric: str | None = None  # None: all of the task's
    clusters: str = "question"
    resamples: int = 10_000
    seed: int = 1
    task: str | None = None  # None: that of the run that the predictions are of, or squad2
    settings: Settings = {}  # how the gold file is laid out, on top of what the run says


USUAL = CompareConfig()


@dataclass(frozen=True)
class ScoreDifference:
    """One metric of both models, in percent but for `rmse` and `mae`; None is a value that there is not."""

    metric: str
    a: float | None
    b: float | None
    difference: float | None = None  # b - a
    low: float | None = None  # of the 95% interval
    high: float | None = None
    p_value: float | None = None


@dataclass(frozen=True)
class Comparison:
    """How two models differ."""

    names: tuple[str, str]
    golds: Golds
    resampled: str  # what was drawn
    units: int  # of these
    resamples: int
    seed: int
    differences: tuple[ScoreDifference, ...]
    undefined: int  # resamples in which some score has no value, such as a correlation of equal numbers
    outcomes: dict[str, Outcomes] | None  # by group; None where predictions are not right or wrong
    mcnemar_p_value: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        kind = self.golds.info.kind
        return {
            "a": self.names[0],
            "b": self.names[1],
            **kind.head(self.golds),
            "resampled": self.resampled,
            "units": self.units,
            "resamples": self.resamples,
            "seed": self.seed,
            "differences": [asdict(each) for each in self.differences],
            **({"undefined": self.undefined} if kind.may_lack_scores else {}),
            "outcomes": {name: each._asdict() for name, each in self.outcomes.items()} if self.outcomes else None,
            "mcnemar_p_value": self.mcnemar_p_value,
        }

    def as_page(self) -> Page:
        """Return everything as it is printed."""
        head = f"{len(self.golds.examples):,} {self.golds.info.kind.nouns}"
        return Page((head, f"A: {self.names[0]}", f"B: {self.names[1]}"), self._sections(), [])

    def _sections(self) -> list[Table]:
        kind = self.golds.info.kind
        note = f"Paired bootstrap: {self.resamples:,} resamples of {self.units:,} {self.resampled}s, seed {self.seed}. "
        note += P_VALUE
        if self.undefined:
            note += f" Left out: {self.undefined:,} resamples in which a score has no value."
        scores = _difference_section(self.differences, note)
        if self.outcomes is None or self.mcnemar_p_value is None:
            return [scores]
        p_value = p_cell(self.mcnemar_p_value)
        mcnemar = f"McNemar's exact test on only A against only B, all {kind.nouns}: p {p_value}."
        return [scores, outcome_section(self.outcomes, mcnemar, kind.right, kind.nouns)]


def compare_files(
    one: str | Path, other: str | Path, gold: str | None = None, config: CompareConfig = USUAL
) -> Comparison:
    """Compare the predictions of two models for the same examples.

    Those of a run, or a run folder (its best model's), say what they are of; `gold` is by default the run's dev file.
    """
    asked = find_asked((one, other), gold, config.task, config.settings)
    name, (one, other) = asked.task, asked.paths
    kind = TASKS[name].kind
    unit = _choice("clusters", config.clusters, UNITS)
    if unit == "article" and kind.cluster != unit:
        raise SettingsError(f"`clusters=article`: task {name} has no articles; leave it out")
    metrics = kind.metrics(TASKS[name])
    if config.metric is not None:
        metrics = (_choice("metric", config.metric, {metric: metric for metric in metrics}),)
    golds = asked.read_golds(gold)
    a, b = (kind.read_predictions(path, golds) for path in (one, other))
    return compare_predictions(
        *(golds, a, b, metrics),
        Draw(units_of(golds.examples, unit), config.resamples, config.seed),
        names=(str(one), str(other)),
        resampled=kind.noun if unit == "question" else unit,
    )


def compare_predictions(
    golds: Golds,
    a: Any,  # noqa: ANN401 (predictions of the golds' kind)
    b: Any,  # noqa: ANN401
    metrics: Sequence[str],
    draw: Draw,
    names: tuple[str, str] = ("A", "B"),
    resampled: str | None = None,
) -> Comparison:
    """Compare two models' predictions, which come in the order of the golds."""
    kind = golds.info.kind
    paired, outcomes = kind.pair(golds, a, b, metrics, draw), kind.outcomes(golds, a, b)
    found = [each.differences for each in paired.values() if each.differences is not None]
    return Comparison(
        names=names,
        golds=golds,
        resampled=resampled or kind.noun,
        units=int(draw.units.max()) + 1,
        resamples=draw.resamples,
        seed=draw.seed,
        differences=tuple(_difference(metric, each) for metric, each in paired.items()),
        undefined=max((int(np.isnan(each).sum()) for each in found), default=0),
        outcomes=outcomes,
        mcnemar_p_value=mcnemar_p_value(outcomes["all"].only_a, outcomes["all"].only_b) if outcomes else None,
    )


def units_of(examples: Sequence[Any], unit: str) -> npt.NDArray[np.int64]:
    """Return which unit each example is drawn with: itself, or its article."""
    if unit == "question":
        return np.arange(len(examples))
    return _articles_of(examples)


def clusters_of(kind: Kind, examples: Sequence[Any]) -> tuple[str, npt.NDArray[np.int64]]:
    """Return what examples are like each other in (articles, documents), where there are several, else themselves."""
    numbers: dict[str, int] = {}
    units = np.array([numbers.setdefault(cluster_of(each), len(numbers)) for each in examples])
    if kind.cluster is None or len(numbers) < 2:
        return kind.noun, np.arange(len(examples))
    return kind.cluster, units


def _articles_of(questions: Sequence[Question]) -> npt.NDArray[np.int64]:
    titles = {title: number for number, title in enumerate(dict.fromkeys(each.title for each in questions))}
    if len(titles) < 2:
        raise DataError(
            "the gold file has a single article title, so articles cannot be resampled; leave `clusters` out"
        )
    return np.array([titles[each.title] for each in questions])


def _difference(metric: str, paired: Paired) -> ScoreDifference:
    if paired.a is None or paired.b is None or paired.differences is None:
        return ScoreDifference(metric, paired.a, paired.b)
    return ScoreDifference(metric, paired.a, paired.b, paired.b - paired.a, *interval_of(paired.differences))


def _difference_section(differences: Sequence[ScoreDifference], note: str) -> Table:
    """Lay out differences; what has no value is an empty cell."""
    rows = tuple(_difference_row(each) for each in differences)
    return Table("Scores", ("metric", "A", "B", "B - A", "95% interval", "p"), rows, note)


def _difference_row(each: ScoreDifference) -> tuple[str, ...]:
    numbers = (_cell(each.metric, each.a), _cell(each.metric, each.b), _cell(each.metric, each.difference, "+"))
    low, high = (_cell(each.metric, bound, "+") for bound in (each.low, each.high))
    return (
        each.metric,
        *numbers,
        f"{low} to {high}" if low else "",
        "" if each.p_value is None else p_cell(each.p_value),
    )


def _cell(metric: str, value: float | None, sign: str = "") -> str:
    if metric not in OWN_UNIT or value is None:
        return number_cell(value, 2, sign)
    return figure(value, sign)


def _choice(option: str, name: str, choices: Mapping[str, Choice]) -> Choice:
    if name not in choices:
        raise SettingsError(f"--{option} {name}: expected one of {', '.join(choices)}")
    return choices[name]
