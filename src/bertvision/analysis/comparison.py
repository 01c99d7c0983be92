"""Two models' answers to the same questions -> scores, their difference, and whether it could be chance."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bertvision.analysis.groups import group_types
from bertvision.analysis.outcomes import Outcomes, count_outcomes, outcome_section
from bertvision.analysis.scored import MetricName, ScoredAnswers
from bertvision.analysis.sections import Section, number_cell, p_cell
from bertvision.errors import DataError
from bertvision.metrics.resampling import mcnemar_p_value, paired_bootstrap
from bertvision.tasks.task import Question

ResampledUnit = Literal["question", "article"]
OWN_UNIT = ("rmse", "mae")  # not in percent: four digits, wherever they begin
P_VALUE = "p: twice the smaller share of resampled differences at or beyond 0."


@dataclass(frozen=True)
class Difference:
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

    questions: int
    resampled: ResampledUnit
    units: int  # questions or articles
    resamples: int
    seed: int
    differences: tuple[Difference, ...]
    outcomes: dict[str, Outcomes]  # right or wrong by exact match, by question type
    mcnemar_p_value: float

    def as_dict(self) -> dict[str, Any]:
        """Give everything as JSON values."""
        return asdict(self) | {"outcomes": {name: each._asdict() for name, each in self.outcomes.items()}}

    def sections(self) -> list[Section]:
        """Give everything as tables."""
        note = bootstrap_note(self.resamples, f"{self.units:,} {self.resampled}s", self.seed)
        mcnemar = mcnemar_note(self.mcnemar_p_value, "questions")
        return [difference_section(self.differences, note), outcome_section(self.outcomes, mcnemar)]


def difference_section(differences: Sequence[Difference], note: str) -> Section:
    """Lay out differences; what has no value is an empty cell."""
    rows = tuple(_difference_row(each) for each in differences)
    return Section("Scores", ("metric", "A", "B", "B - A", "95% interval", "p"), rows, note)


def bootstrap_note(resamples: int, units: str, seed: int) -> str:
    """Say what was drawn, and what p is."""
    return f"Paired bootstrap: {resamples:,} resamples of {units}, seed {seed}. {P_VALUE}"


def mcnemar_note(p_value: float, noun: str) -> str:
    """Say what McNemar's test found."""
    return f"McNemar's exact test on only A against only B, all {noun}: p {p_cell(p_value)}."


def compare_answers(
    questions: Sequence[Question],
    a: ScoredAnswers,
    b: ScoredAnswers,
    *,
    metrics: Sequence[MetricName] = ("exact", "f1"),
    resample: ResampledUnit = "question",
    resamples: int = 10_000,
    seed: int = 1,
) -> Comparison:
    """Compare two models' answers, question by question."""
    units = units_of(questions, resample)
    outcomes = count_outcomes(group_types(questions), questions, a, b)
    return Comparison(
        questions=len(questions),
        resampled=resample,
        units=int(units.max()) + 1,
        resamples=resamples,
        seed=seed,
        differences=tuple(_difference(each, questions, a, b, units, resamples, seed) for each in metrics),
        outcomes=outcomes,
        mcnemar_p_value=mcnemar_p_value(outcomes["all"].only_a, outcomes["all"].only_b),
    )


def units_of(questions: Sequence[Question], resample: ResampledUnit) -> npt.NDArray[np.int64]:
    """Tell which unit each question is drawn with."""
    if resample == "question":
        return np.arange(len(questions))
    titles = {title: number for number, title in enumerate(dict.fromkeys(each.title for each in questions))}
    if len(titles) < 2:
        raise DataError(
            "the gold file has a single article title, so articles cannot be resampled; leave --clusters out"
        )
    return np.array([titles[each.title] for each in questions])


def _difference(
    metric: MetricName,
    questions: Sequence[Question],
    a: ScoredAnswers,
    b: ScoredAnswers,
    units: npt.NDArray[np.int64],
    resamples: int,
    seed: int,
) -> Difference:
    one, other = (100.0 * sum(each.worth(metric, questions).tolist()) / len(questions) for each in (a, b))
    differences = 100 * (b.worth(metric, questions) - a.worth(metric, questions))
    low, high, p_value = paired_bootstrap(differences, units, resamples, seed)
    return Difference(metric, one, other, other - one, low, high, p_value)


def _difference_row(each: Difference) -> tuple[str, ...]:
    numbers = (_cell(each.metric, each.a), _cell(each.metric, each.b), _cell(each.metric, each.difference, "+"))
    low, high = (_cell(each.metric, bound, "+") for bound in (each.low, each.high))
    return (
        each.metric,
        *numbers,
        f"{low} to {high}" if low else "",
        "" if each.p_value is None else p_cell(each.p_value),
    )


def _cell(metric: str, value: float | None, sign: str = "") -> str:
    if metric not in OWN_UNIT:
        return number_cell(value, 2, sign)
    return "" if value is None else f"{value:{sign},.4g}"
