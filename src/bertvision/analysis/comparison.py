"""Two models' answers to the same questions -> scores, their difference, and whether it could be chance."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bertvision.analysis.groups import group_types
from bertvision.analysis.outcomes import Outcomes, count_outcomes, outcome_section
from bertvision.analysis.paired import mcnemar_p_value, paired_bootstrap
from bertvision.analysis.scored import MetricName, ScoredAnswers
from bertvision.analysis.sections import Section, number_cell, p_cell
from bertvision.errors import DataError
from bertvision.tasks.task import Question

ResampledUnit = Literal["question", "article"]
P_VALUE = "p: twice the smaller share of resampled differences at or beyond 0."


@dataclass(frozen=True)
class Difference:
    """One metric of both models, in percent."""

    metric: MetricName
    a: float
    b: float
    difference: float  # b - a
    low: float  # of the 95% interval
    high: float
    p_value: float


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
        mcnemar = f"McNemar's exact test on only A against only B, all questions: p {p_cell(self.mcnemar_p_value)}."
        return [self._score_section(), outcome_section(self.outcomes, mcnemar)]

    def _score_section(self) -> Section:
        plural = f"{self.units:,} {self.resampled}s"
        note = f"Paired bootstrap: {self.resamples:,} resamples of {plural}, seed {self.seed}. {P_VALUE}"
        rows = tuple(_difference_row(each) for each in self.differences)
        return Section("Scores", ("metric", "A", "B", "B - A", "95% interval", "p"), rows, note)


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
    units = _units(questions, resample)
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


def _units(questions: Sequence[Question], resample: ResampledUnit) -> npt.NDArray[np.int64]:
    """Tell which unit each question is drawn with."""
    if resample == "question":
        return np.arange(len(questions))
    titles = {title: number for number, title in enumerate(dict.fromkeys(each.title for each in questions))}
    if len(titles) < 2:
        raise DataError(
            "the gold file has a single article title, so articles cannot be resampled; leave --clusters out"
        )
    return np.array([titles[each.title] for each in questions])


def _difference_row(each: Difference) -> tuple[str, ...]:
    numbers = (number_cell(each.a, 2), number_cell(each.b, 2), number_cell(each.difference, 2, "+"))
    return (each.metric, *numbers, f"{each.low:+.2f} to {each.high:+.2f}", p_cell(each.p_value))
