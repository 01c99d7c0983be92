"""Two models' worths on the same questions -> how far apart they are, and whether chance alone could do that.

Most scores are made of sums. The best F1 is not: in each resample another threshold of "no answer" is best (`Sweep`).

Resamples of 8 right out of 8 are all 8 right out of 8. Clopper and Pearson (1934) ask instead which shares make what
was seen not too unlikely. Own lines rather than scipy's, which is no dependency; the tests compare with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.data.example import Question
from bertvision.scoring.squad import answer_worths

Floats = npt.NDArray[np.float64]
CELLS_AT_ONCE = 200_000  # counts of resamples held at once: 1.6 MB, which a processor's cache holds
MANY_KINDS = 1000
DIGITS = 12  # sums in another order differ behind these, which would turn a difference of 0 into one


class Draw(NamedTuple):
    """What is drawn: units with replacement, so many times."""

    units: npt.NDArray[np.int64]  # which unit each example is drawn with: itself, or its article
    resamples: int
    seed: int


class Paired(NamedTuple):
    """One score of two models; None is a value that there is not."""

    a: float | None
    b: float | None
    differences: Floats | None  # b - a in each resample, NaN where a score has no value


class Interval(NamedTuple):
    """Where 95% of the resampled differences lie, and how often chance alone would be as far from 0."""

    low: float
    high: float
    p_value: float


def resample_means(differences: Floats, draw: Draw) -> Floats:
    """Return the mean difference in each resample."""
    parts = np.stack([differences, np.ones_like(differences)], axis=1)
    totals, sizes = resample_sums(parts, draw.units, draw.resamples, draw.seed)
    means: Floats = totals / sizes
    return means


def interval_of(resampled: Floats) -> Interval:
    """Return where the middle 95% of resampled differences lie, and the p-value; those that are NaN are left out.

    The two-sided p-value is twice the smaller share of resamples at or beyond 0, with the sample itself counted as one
    more, so that it is never 0.
    """
    known = np.round(resampled[~np.isnan(resampled)], DIGITS)
    low, high = bounds_of(known)
    beyond = int(min(np.count_nonzero(known <= 0), np.count_nonzero(known >= 0)))
    return Interval(low, high, min(1.0, 2 * (beyond + 1) / (len(known) + 1)))


def bounds_of(resampled: Floats) -> tuple[float, float]:
    """Return between which values the middle 95% lie."""
    low, high = np.percentile(resampled, (2.5, 97.5))
    return float(low), float(high)


def resample_sums(parts: Floats, units: npt.NDArray[np.int64], resamples: int, seed: int) -> Floats:
    """Resample units with replacement and sum up what their rows add: [row, part] -> [part, resample].

    Draws how often each kind of unit is in a resample: units of equal sums need no telling apart.
    """
    sums: Floats = np.stack([np.bincount(units, weights=part) for part in parts.T], axis=1).astype(np.float64)
    kinds, counts = np.unique(sums, axis=0, return_counts=True)
    return np.concatenate([_sum_up(drawn, kinds) for drawn in draw_counts(counts, resamples, seed)], axis=1)


def draw_counts(counts: npt.NDArray[np.int64], resamples: int, seed: int) -> Iterator[Floats]:
    """Draw how often each kind is in a resample, where there are `counts` of it: blocks of [resample, kind]."""
    random, total = np.random.default_rng(seed), int(counts.sum())
    rows = max(1, CELLS_AT_ONCE // len(counts))
    for first in range(0, resamples, rows):
        size = min(rows, resamples - first)
        if len(counts) > MANY_KINDS:
            drawn = _count_drawn(np.repeat(np.arange(len(counts)), counts), size, random)
        else:
            drawn = random.multinomial(total, counts / total, size=size)
        yield drawn.astype(np.float64)


def draw_seeds(resampled: Floats, seed: int) -> Floats:
    """Average over seeds that are drawn with replacement, anew in each resample: [seed, resample] -> [resample]."""
    seeds, resamples = resampled.shape
    # A stream of its own: what is drawn of the seeds must not go with what is drawn of the examples.
    drawn = np.random.default_rng((seed, seeds)).multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples)
    means: Floats = np.einsum("rs,sr->r", drawn / seeds, resampled)
    return means


class Sweep(NamedTuple):
    """What each answer adds as the threshold rises, from where the model abstains from all questions."""

    abstained: Floats  # what "no answer" is worth, by question
    order: npt.NDArray[np.int64]  # the questions whose answers change the score, by rising odds of "no answer"
    gains: Floats  # by how much they do: their F1, or -1 where "no answer" was right


def build_sweep(questions: Sequence[Question], spans: Mapping[str, str], null_odds: Mapping[str, float]) -> Sweep:
    """Order a model's best spans as the official script does: one by one, and where odds are equal as in their file."""
    place_of = {each.id: place for place, each in enumerate(questions)}
    f1 = answer_worths(questions, spans).f1
    gains = np.array([-float(bool(spans[each.id])) if each.is_impossible else f1[each.id] for each in questions])
    rising = np.array([place_of[each] for each in sorted(null_odds, key=null_odds.__getitem__)])
    order = rising[gains[rising] != 0]
    return Sweep(np.array([float(each.is_impossible) for each in questions]), order, gains[order])


def best_f1(sweep: Sweep, counts: Floats) -> Floats:
    """Return the official best F1 in percent, questions counted so often: [resample, question] -> [resample]."""
    nothing = counts @ sweep.abstained  # whole numbers, so exact for any number of threads
    sums = np.take(counts, sweep.order, axis=1)  # takes half as long as an index does
    sums *= sweep.gains
    sums[:, :1] += nothing[:, None]
    np.cumsum(sums, axis=1, out=sums)  # from left to right, as the official script adds
    best: Floats = 100.0 * np.maximum(nothing, sums.max(axis=1, initial=0.0)) / counts.sum(axis=1)
    return best


def resample_best_f1(sweeps: Sequence[Sweep], draw: Draw) -> Floats:
    """Return every model's best F1 of the questions as they are, then of the same resamples: [model, 1 + resample]."""
    found = [[best_f1(sweep, np.ones((1, len(draw.units)))) for sweep in sweeps]]
    kinds = np.ones(int(draw.units.max()) + 1, dtype=np.int64)
    for drawn in draw_counts(kinds, draw.resamples, draw.seed):
        counts = np.take(drawn, draw.units, axis=1)  # a question comes as often as its article
        found.append([best_f1(sweep, counts) for sweep in sweeps])
    return np.concatenate(found, axis=1)


def mcnemar_p_value(only_one: int, only_other: int) -> float:
    """Return McNemar's exact two-sided p-value: how often fair coins split the disagreements as unevenly."""
    total = only_one + only_other
    ways = tail = 1
    for heads in range(min(only_one, only_other)):
        ways = ways * (total - heads) // (heads + 1)
        tail += ways
    share: float = 2 * tail / 2**total  # whole numbers up to here, so exact for any count
    return min(1.0, share)


def _count_drawn(kind_of: npt.NDArray[np.int64], resamples: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw one by one and count, which takes an eighth of the time that thousands of binomials do."""
    kinds = int(kind_of[-1]) + 1
    drawn = kind_of[random.integers(0, len(kind_of), size=(resamples, len(kind_of)))]
    drawn += kinds * np.arange(resamples)[:, None]
    return np.bincount(drawn.ravel(), minlength=resamples * kinds).reshape(resamples, kinds)


def _sum_up(drawn: Floats, kinds: Floats) -> Floats:
    if np.array_equal(kinds, np.rint(kinds)):
        return (drawn @ kinds).T  # sums of whole numbers are exact in any order
    # Not a matrix product, whose last digits depend on the number of threads.
    summed: Floats = np.einsum("ru,us->sr", drawn, kinds)
    return summed


TAIL = 0.025  # of probability on either side, so that the interval holds the truth in at least 95% of cases
HALVINGS = 50  # of a share, until its digits are a float's


def exact_interval(hits: int, draws: int) -> tuple[float, float]:
    """Return the exact 95% interval of the share that so many hits of so many draws come from, in percent."""
    return 100 - 100 * _highest_share(draws - hits, draws), 100 * _highest_share(hits, draws)


def half_right(examples: int) -> str:
    """Say how little so few examples show, where half of them are right."""
    low, high = exact_interval(examples // 2, examples)
    return f"with {examples // 2} of {examples:,} right, the 95% interval is {low:.0f} to {high:.0f}%"


def exact_difference(only_one: int, only_other: int, examples: int) -> tuple[float, float]:
    """Return a 95% interval of how many points one model lies above another on the same examples.

    Given the examples on which exactly one of them is right: it holds 0 where McNemar's exact test gives 5% or more.
    """
    apart = only_one + only_other
    if not apart:
        return 0.0, 0.0
    low, high = exact_interval(only_one, apart)
    return (2 * low - 100) * apart / examples, (2 * high - 100) * apart / examples


def binomial_tail(most: int, draws: int, share: float) -> float:
    """Return the probability of at most so many hits in a number of draws that hit with a share."""
    if share in (0.0, 1.0) or most >= draws:
        return float(share < 1.0 or most >= draws)
    hits = np.arange(most + 1)
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, draws + 1)))])
    logs = factorials[draws] - factorials[hits] - factorials[draws - hits]
    return float(np.exp(logs + hits * np.log(share) + (draws - hits) * np.log1p(-share)).sum())


def _highest_share(hits: int, draws: int) -> float:
    """Return the highest share at which so few hits are not yet too unlikely."""
    if hits == draws:
        return 1.0
    low, high = hits / draws, 1.0
    for _ in range(HALVINGS):
        share = (low + high) / 2
        if binomial_tail(hits, draws, share) > TAIL:
            low = share
        else:
            high = share
    return low
