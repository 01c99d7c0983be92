"""Predictions of a model that has not seen the examples -> which golds look wrong.

Classes as in confident learning (Northcutt, Jiang and Chuang 2021): a row is suspect where another class is at least as
probable as that class is, on average, for the rows that are labelled with it.
"""

import numpy as np
import numpy.typing as npt

Probabilities = npt.NDArray[np.float64]  # [row, class]
Places = list[int]  # of suspect rows, the likeliest first
FAR = 3.0  # standard deviations, for which the median error stands; 0.3% of normal errors lie beyond
MEDIAN_OF_NORMAL = 0.6745  # of the absolute error, in standard deviations


def suspect_classes(golds: npt.NDArray[np.int64], probabilities: Probabilities) -> Places:
    """Return the rows whose class looks wrong, by how much less probable it is than the likeliest."""
    rows = np.arange(len(golds))
    best = probabilities.argmax(axis=1)
    margins = probabilities[rows, best] - probabilities[rows, golds]
    confident = probabilities[rows, best] >= _usual(golds, probabilities)[best]
    return _by_size(margins, (best != golds) & confident)


def suspect_labels(golds: npt.NDArray[np.int64], probabilities: Probabilities) -> Places:
    """Return the rows any of whose labels looks wrong; each label is two classes, there and not there."""
    margins = np.zeros(len(golds))
    for gold, there in zip(golds.T, probabilities.T, strict=True):
        both = np.stack([1 - there, there], axis=1)
        suspects = suspect_classes(gold, both)
        margins[suspects] = np.maximum(margins[suspects], np.abs(gold - there)[suspects])
    return _by_size(margins, margins > 0)


def suspect_numbers(golds: npt.NDArray[np.float64], predicted: npt.NDArray[np.float64]) -> Places:
    """Return the rows whose error is far larger than is usual."""
    errors = np.abs(golds - predicted - np.median(golds - predicted))
    return _by_size(errors, errors > FAR * np.median(errors) / MEDIAN_OF_NORMAL)


def _usual(golds: npt.NDArray[np.int64], probabilities: Probabilities) -> npt.NDArray[np.float64]:
    """Return how probable each class is on average where it is the gold; a class that never is has no suspects."""
    places = range(probabilities.shape[1])
    return np.array([probabilities[golds == each, each].mean() if (golds == each).any() else np.inf for each in places])


def _by_size(sizes: npt.NDArray[np.float64], chosen: npt.NDArray[np.bool_]) -> Places:
    places: Places = [int(place) for place in np.argsort(-sizes, kind="stable") if chosen[place]]
    return places
