"""What a score of a record is worth, and which model is the best where few examples can hardly tell."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from bertvision.records.runs import Interval, RunRecord, main_score
from bertvision.tables import counted, figure

# Resamples of fewer are too alike, and their middle 95% too narrow; shares of right examples need none.
LEAST_EXAMPLES = 30
MOST_TIED = 3  # models named


class Estimate(float):
    """A score of a record, with what it is worth."""

    interval: Interval | None = None  # 95%, of the score on all such examples; None: there are too few
    examples: int = 0  # that it was computed on

    def __new__(cls, score: float, interval: Interval | None = None, examples: int = 0) -> "Estimate":
        """Keep what a score is worth beside it."""
        estimate = super().__new__(cls, score)
        estimate.interval, estimate.examples = interval, examples
        return estimate

    def __repr__(self) -> str:
        """Never show the score alone."""
        if self.interval is None:
            return f"{figure(self)} (no interval: {counted(self.examples, 'example')})"
        low, high = self.interval
        return f"{figure(self)} (95% interval {figure(low)} to {figure(high)}, {counted(self.examples, 'example')})"


def worth_of(interval: Interval | None, examples: int | None) -> str:
    """Say what a score in percent is worth; empty where a record of many examples holds no interval."""
    if interval is not None:
        return f"95% interval {interval[0]:.1f} to {interval[1]:.1f}"
    if examples is None or examples >= LEAST_EXAMPLES:
        return ""
    return f"too few for an interval: each counts about {100 / examples:.1f} points"


class Choice(NamedTuple):
    """The best of several models, each with a record for every seed."""

    best: Sequence[RunRecord]
    tied: list[Sequence[RunRecord]]  # others, which the examples of dev cannot tell from it

    @property
    def ties(self) -> str:
        """Name what it is tied with; empty where it is with none."""
        names = [each[0].model for each in self.tied]
        if len(names) > MOST_TIED:
            names = [*names[:MOST_TIED], counted(len(names) - MOST_TIED, "other")]
        return (
            f"tied with {' and '.join([', '.join(names[:-1]), names[-1]] if len(names) > 1 else names)}"
            if names
            else ""
        )


def choose_model(models: Sequence[Sequence[RunRecord]], score: Callable[[RunRecord], float] = main_score) -> Choice:
    """Return the model with the best score.

    Where dev's examples cannot tell others from it, they are tied; of these, one that reads the last layer alone is
    taken and, where there are several, the one with the fewest weights of its own.
    """

    def mean(model: Sequence[RunRecord]) -> float:
        return fmean(map(score, model))

    top = max(models, key=mean)
    near = [each for each in models if _is_comparable(each, top) and (mean(each) == mean(top) or _are_tied(each, top))]
    best = min(near, key=_own_size)
    return Choice(best, [each for each in near if each is not best])


def _is_comparable(model: Sequence[RunRecord], other: Sequence[RunRecord]) -> bool:
    own, its = (
        [(each.experiment, each.variant, each.task, each.fraction, each.seed) for each in side]
        for side in (model, other)
    )
    return own == its


def _are_tied(model: Sequence[RunRecord], other: Sequence[RunRecord]) -> bool:
    """Return whether neither lies surely above or below the best single model, with any seed."""
    leads = [each.behind_best for each in (*model, *other)]
    return all(lead is not None and lead[0] <= 0 <= lead[1] for lead in leads)


def _own_size(model: Sequence[RunRecord]) -> tuple[bool, int]:
    first = model[0]
    weights = first.parameters.total - (first.parameters.encoder if first.kind == "encoder" else 0)
    return first.kind not in ("encoder", "control"), weights
