"""Two models' worths on the same questions -> how far apart they are, and whether chance alone could do that."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
CELLS_AT_ONCE = 2_000_000  # counts of resamples held in memory: 16 MB
DIGITS = 12  # sums in another order differ behind these, which would turn a difference of 0 into one


class Interval(NamedTuple):
    """Where 95% of the resampled differences lie, and how often chance alone would be as far from 0."""

    low: float
    high: float
    p_value: float


def paired_bootstrap(
    differences: Floats, units: npt.NDArray[np.int64], resamples: int = 10_000, seed: int = 1
) -> Interval:
    """Resample units with replacement and give the percentile interval of the mean difference.

    `units` tells which unit each difference belongs to: itself, or its article. The two-sided p-value is twice the
    smaller share of resamples at or beyond 0, with the sample itself counted as one more, so that it is never 0.
    """
    resampled = np.round(_resampled_means(differences, units, resamples, np.random.default_rng(seed)), DIGITS)
    low, high = np.percentile(resampled, (2.5, 97.5))
    beyond = min(np.count_nonzero(resampled <= 0), np.count_nonzero(resampled >= 0))
    return Interval(float(low), float(high), min(1.0, 2 * (beyond + 1) / (resamples + 1)))


def mcnemar_p_value(only_one: int, only_other: int) -> float:
    """Give McNemar's exact two-sided p-value: how often fair coins split the disagreements as unevenly."""
    total = only_one + only_other
    ways = tail = 1
    for heads in range(min(only_one, only_other)):
        ways = ways * (total - heads) // (heads + 1)
        tail += ways
    share: float = 2 * tail / 2**total  # whole numbers up to here, so exact for any count
    return min(1.0, share)


def _resampled_means(
    differences: Floats, units: npt.NDArray[np.int64], resamples: int, random: np.random.Generator
) -> Floats:
    """Draw how often each kind of unit is in a resample: units of equal sum and size need no telling apart."""
    sums = np.stack([np.bincount(units, weights=differences), np.bincount(units)], axis=1)
    kinds, counts = np.unique(sums, axis=0, return_counts=True)
    rows = max(1, CELLS_AT_ONCE // len(kinds))
    means = []
    for first in range(0, resamples, rows):
        drawn = random.multinomial(counts.sum(), counts / counts.sum(), size=min(rows, resamples - first))
        # Not a matrix product, whose last digits depend on the number of threads.
        totals, sizes = np.einsum("ru,us->sr", drawn.astype(np.float64), kinds)
        means.append(totals / sizes)
    return np.concatenate(means)
