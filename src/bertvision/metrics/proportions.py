"""So many right of so many -> between which shares the truth lies: exactly, at any number and any share.

Resamples of 8 right out of 8 are all 8 right out of 8. Clopper and Pearson (1934) ask instead which shares make what
was seen not too unlikely. Own lines rather than scipy's, which is no dependency; the tests compare with it.
"""

import numpy as np

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
