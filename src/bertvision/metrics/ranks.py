"""Spearman's correlation of resampled rows, which no sums give: a row's rank depends on the others drawn with it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.metrics.resampling import Floats, draw_counts
from bertvision.metrics.scores import Numbers
from bertvision.metrics.summed import divided


class Order(NamedTuple):
    """Where rows stand among sorted numbers."""

    rows: npt.NDArray[np.int64]  # from the lowest number to the highest
    ends: npt.NDArray[np.int64]  # the places in `rows` of the last of each run of equal numbers
    runs: npt.NDArray[np.int64]  # the run that each row is in


def resample_spearman(gold: Numbers, a: Numbers, b: Numbers, resamples: int, seed: int) -> Floats:
    """Give both models' correlations in percent on the same resamples, [2, resample]; NaN where all are equal."""
    orders = [_order(side) for side in (gold, a, b)]
    found = []
    for drawn in draw_counts(np.ones(len(gold), dtype=np.int64), resamples, seed):
        counts = np.ascontiguousarray(drawn.T)  # [row, resample]: whole lines are moved when rows are sorted
        golds, *sides = (_centred_ranks(counts, order) for order in orders)
        found.append(_correlations(counts, golds, sides))
    return np.concatenate(found, axis=1)


def _order(values: Numbers) -> Order:
    _, runs = np.unique(values, return_inverse=True)
    rows = np.argsort(runs, kind="stable")
    return Order(rows, np.flatnonzero(np.diff(runs[rows], append=-1)), runs)


def _centred_ranks(counts: Floats, order: Order) -> Floats:
    """Give each row's rank among the drawn ones, less the mean of all ranks; equal numbers share theirs."""
    last = np.cumsum(counts[order.rows], axis=0)[order.ends]
    sizes = np.diff(last, axis=0, prepend=0)
    ranks: Floats = (last - (sizes + len(counts)) / 2)[order.runs]
    return ranks


def _correlations(counts: Floats, golds: Floats, sides: Sequence[Floats]) -> list[Floats]:
    weighed = counts * golds
    spread = _dots(weighed, golds)
    spreads = [np.sqrt(spread * _dots(counts * side, side)) for side in sides]
    return [100 * divided(_dots(weighed, side), each, np.nan) for side, each in zip(sides, spreads, strict=True)]


def _dots(x: Floats, y: Floats) -> Floats:
    summed: Floats = np.einsum("nr,nr->r", x, y)
    return summed
