"""Two models' predictions for the same examples of any task but spans -> how their scores differ."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bertvision.analysis.comparison import Difference, bootstrap_note, difference_section, mcnemar_note
from bertvision.analysis.outcomes import Outcomes, count_right, outcome_section
from bertvision.analysis.paired import Floats, interval_of, mcnemar_p_value, resample_sums
from bertvision.analysis.ranks import resample_spearman
from bertvision.analysis.rows import are_right, found_values, gold_values, noun_of
from bertvision.analysis.sections import Section
from bertvision.analysis.summed import ROW_SCORES, TAG_SCORES, Summed
from bertvision.metrics.labels import Numbers
from bertvision.metrics.rows import PAPER, Labelled, Predicted, gold_of, score_rows
from bertvision.tasks.catalog import TASKS
from bertvision.tasks.task import TaskName

MOST_CLASSES = 12  # that who-is-right is told for one by one


@dataclass(frozen=True)
class RowComparison:
    """How two models differ."""

    task: TaskName
    examples: int
    resampled: str
    units: int
    resamples: int
    seed: int
    differences: tuple[Difference, ...]
    undefined: int  # resamples in which some score has no value, such as a correlation of equal numbers
    outcomes: dict[str, Outcomes] | None  # by gold class; None where answers are not right or wrong
    mcnemar_p_value: float | None

    def as_dict(self) -> dict[str, Any]:
        """Give everything as JSON values."""
        outcomes = {name: each._asdict() for name, each in self.outcomes.items()} if self.outcomes else None
        return asdict(self) | {"outcomes": outcomes}

    def sections(self) -> list[Section]:
        """Give everything as tables."""
        note = bootstrap_note(self.resamples, f"{self.units:,} {self.resampled}s", self.seed)
        if self.undefined:
            note += f" Left out: {self.undefined:,} resamples in which a score has no value."
        scores = difference_section(self.differences, note)
        if self.outcomes is None or self.mcnemar_p_value is None:
            return [scores]
        nouns = f"{noun_of(TASKS[self.task].kind)}s"
        mcnemar = mcnemar_note(self.mcnemar_p_value, nouns)
        return [scores, outcome_section(self.outcomes, mcnemar, "Who is right", nouns)]


def compare_rows(
    task: TaskName,
    examples: Sequence[Labelled],
    labels: Sequence[str],
    a: Sequence[Predicted],
    b: Sequence[Predicted],
    *,
    metrics: Sequence[str],
    units: npt.NDArray[np.int64] | None = None,
    resamples: int = 10_000,
    seed: int = 1,
) -> RowComparison:
    """Compare two models' predictions, which come in the order of the examples.

    `units` tells which article each question is drawn with; without them examples are drawn one by one.
    """
    drawn = np.arange(len(examples)) if units is None else units
    found = [_difference(task, metric, examples, a, b, drawn, resamples, seed) for metric in metrics]
    outcomes = count_row_outcomes(task, examples, labels, a, b)
    return RowComparison(
        task=task,
        examples=len(examples),
        resampled=noun_of(TASKS[task].kind) if units is None else "article",
        units=int(drawn.max()) + 1,
        resamples=resamples,
        seed=seed,
        differences=tuple(difference for difference, _ in found),
        undefined=max(undefined for _, undefined in found),
        outcomes=outcomes,
        mcnemar_p_value=mcnemar_p_value(outcomes["all"].only_a, outcomes["all"].only_b) if outcomes else None,
    )


def count_row_outcomes(
    task: TaskName,
    examples: Sequence[Labelled],
    labels: Sequence[str],
    a: Sequence[Predicted],
    b: Sequence[Predicted],
) -> dict[str, Outcomes] | None:
    """Count who is right by gold class, where classes are few, and in all; None for numbers and tags."""
    kind = TASKS[task].kind
    if kind in ("number", "tags"):
        return None
    right = list(zip(are_right(examples, a), are_right(examples, b), strict=True))
    groups: dict[str, list[tuple[bool, bool]]] = {}
    if kind in ("class", "answerable") and len(labels) <= MOST_CLASSES:
        groups = {name: [] for name in labels}
        for example, pair in zip(examples, right, strict=True):
            groups[labels[gold_of(example)]].append(pair)
    return {name: count_right(*_unzipped(pairs)) for name, pairs in {**groups, "all": right}.items()}


def resample_scores(
    score: Summed, gold: Numbers, a: Numbers, b: Numbers, units: npt.NDArray[np.int64], resamples: int, seed: int
) -> Floats:
    """Give both models' scores on the same resamples, [2, resample]; NaN where there is none."""
    one, other = score.parts(gold, a), score.parts(gold, b)
    sums = resample_sums(np.concatenate([one, other], axis=1), units, resamples, seed)
    return np.stack([score.score(sums[: one.shape[1]]), score.score(sums[one.shape[1] :])])


def _difference(
    task: TaskName,
    metric: str,
    examples: Sequence[Labelled],
    a: Sequence[Predicted],
    b: Sequence[Predicted],
    units: npt.NDArray[np.int64],
    resamples: int,
    seed: int,
) -> tuple[Difference, int]:
    one, other = (score_rows(task, examples, side).get(metric) for side in (a, b))
    values = [found_values(metric, examples, side) for side in (a, b)]
    if one is None or other is None or values[0] is None or values[1] is None:
        return Difference(metric, one, other), 0
    gold, name = gold_values(TASKS[task].kind, examples), metric.removeprefix(PAPER)
    if name == "spearman":
        scores = resample_spearman(gold, values[0], values[1], resamples, seed)
    else:
        table = TAG_SCORES if TASKS[task].kind == "tags" else ROW_SCORES
        scores = resample_scores(table[name], gold, values[0], values[1], units, resamples, seed)
    differences = scores[1] - scores[0]
    return Difference(metric, one, other, other - one, *interval_of(differences)), int(np.isnan(differences).sum())


def _unzipped(pairs: Sequence[tuple[bool, bool]]) -> tuple[list[bool], list[bool]]:
    return [one for one, _ in pairs], [other for _, other in pairs]
