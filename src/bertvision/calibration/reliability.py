"""Whether answers that are held to be right with probability p are right that often."""

from typing import NamedTuple

import numpy as np

from bertvision.calibration.answers import Bools, Floats

BINS = 15


class Bin(NamedTuple):
    """Answers of about the same confidence."""

    place: int  # from 0
    confidence: float  # their mean
    right: float  # share of them
    size: int


def reliability_bins(confidence: Floats, is_right: Bools) -> list[Bin]:
    """Sort answers into bins of equal width, of which empty ones are left out; a bound belongs to the bin above it."""
    places = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    groups = {place: places == place for place in np.unique(places).tolist()}
    return [
        Bin(place, float(confidence[group].mean()), float(is_right[group].mean()), int(group.sum()))
        for place, group in groups.items()
    ]


def calibration_error(bins: list[Bin]) -> float:
    """Give the expected calibration error: the bins' distances from the truth, weighed by their counts."""
    total = sum(each.size for each in bins)
    return sum(each.size * abs(each.right - each.confidence) for each in bins) / total
