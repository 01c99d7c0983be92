"""Two models' predictions for the same examples of any task but spans -> how their scores differ."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bertvision.analysis.comparison import Difference, bootstrap_note, difference_section, mcnemar_note
from bertvision.analysis.outcomes import Outcomes, count_right, outcome_section
from bertvision.analysis.rows import are_right, found_values, gold_values, noun_of
from bertvision.analysis.sections import Section
from bertvision.metrics.ranks import resample_spearman
from bertvision.metrics.resampling import Floats, interval_of, mcnemar_p_value, resample_sums
from bertvision.metrics.rows import PAPER, Labelled, Predicted, gold_of, score_rows
from bertvision.metrics.scores import Numbers
from bertvision.metrics.squad import Scores
from bertvision.metrics.summed import ROW_SCORES, TAG_SCORES, Summed
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
    scores = [score_rows(task, examples, side) for side in (a, b)]
    # All scores, whichever are asked for: an interval must not depend on what stands beside it.
    resampled = _resample(task, examples, a, b, drawn, resamples, seed)
    found = [resampled[metric] for metric in metrics if metric in resampled]
    outcomes = count_row_outcomes(task, examples, labels, a, b)
    return RowComparison(
        task=task,
        examples=len(examples),
        resampled=noun_of(TASKS[task].kind) if units is None else "article",
        units=int(drawn.max()) + 1,
        resamples=resamples,
        seed=seed,
        differences=tuple(_difference(metric, scores, resampled.get(metric)) for metric in metrics),
        undefined=max((int(np.isnan(each).any(axis=0).sum()) for each in found), default=0),
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


def _resample(
    task: TaskName,
    examples: Sequence[Labelled],
    a: Sequence[Predicted],
    b: Sequence[Predicted],
    units: npt.NDArray[np.int64],
    resamples: int,
    seed: int,
) -> dict[str, Floats]:
    """Give both models' scores on the same resamples, [2, resample], for every score that the predictions have."""
    gold, parts, ranked = gold_values(TASKS[task].kind, examples), {}, {}
    table = TAG_SCORES if TASKS[task].kind == "tags" else ROW_SCORES
    for metric in TASKS[task].scores:
        one, other = (found_values(metric, examples, side) for side in (a, b))
        if one is None or other is None:
            continue
        if metric == "spearman":
            ranked[metric] = resample_spearman(gold, one, other, resamples, seed)
        else:
            parts[metric] = table[metric.removeprefix(PAPER)], gold, one, other
    return resample_scores(parts, units, resamples, seed) | ranked


def resample_scores(
    compared: Mapping[str, tuple[Summed, Numbers, Numbers, Numbers]],
    units: npt.NDArray[np.int64],
    resamples: int,
    seed: int,
) -> dict[str, Floats]:
    """Give each score of two models, [2, resample], from golds and both models' answers; NaN where there is none."""
    parts = [score.parts(gold, side) for score, gold, *sides in compared.values() for side in sides]
    sums = resample_sums(np.concatenate(parts, axis=1), units, resamples, seed)
    blocks = iter(np.split(sums, np.cumsum([each.shape[1] for each in parts])[:-1]))
    return {
        metric: np.stack([score.score(next(blocks)), score.score(next(blocks))])
        for metric, (score, *_) in compared.items()
    }


def _difference(metric: str, scores: Sequence[Scores], resampled: Floats | None) -> Difference:
    one, other = (each.get(metric) for each in scores)
    if one is None or other is None or resampled is None:
        return Difference(metric, one, other)
    return Difference(metric, one, other, other - one, *interval_of(resampled[1] - resampled[0]))


def _unzipped(pairs: Sequence[tuple[bool, bool]]) -> tuple[list[bool], list[bool]]:
    return [one for one, _ in pairs], [other for _, other in pairs]
