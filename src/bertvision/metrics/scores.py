"""Scores of classes, labels and numbers; in percent but for `rmse` and `mae`. None is a score that has no value.

Own lines rather than scikit-learn's and scipy's, which are no dependencies; the definitions are theirs.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]  # one for each row; for label sets [row, label], 0 or 1


def accuracy(gold: Numbers, found: Numbers) -> float:
    """Give the share of rows whose class is right."""
    return 100 * float(np.mean(gold == found))


def f1(gold: Numbers, found: Numbers, positive: int = 1) -> float | None:
    """Give the F1 of one class; None where it is neither there nor predicted."""
    return _f1_of_counts(*_counts(gold == positive, found == positive))


def macro_f1(gold: Numbers, found: Numbers) -> float | None:
    """Give the mean F1 of the classes, or of the labels of label sets, that are there or are predicted."""
    if gold.ndim == 2:
        columns = [f1(*pair) for pair in zip(gold.T, found.T, strict=True)]
    else:
        columns = [f1(gold, found, int(each)) for each in np.union1d(gold, found)]
    known = [each for each in columns if each is not None]
    return float(np.mean(known)) if known else None


def micro_f1(gold: Numbers, found: Numbers) -> float | None:
    """Give the F1 of all labels of all rows together."""
    return f1(gold.reshape(-1), found.reshape(-1))


def exact_sets(gold: Numbers, found: Numbers) -> float:
    """Give the share of rows all of whose labels are right."""
    return 100 * float(np.mean((gold == found).all(axis=1)))


def matthews(gold: Numbers, found: Numbers) -> float:
    """Give Matthews' correlation of two classes, 0 where either side knows one class alone (as scikit-learn has it)."""
    true_pos, false_pos, false_neg = _counts(gold == 1, found == 1)
    true_neg = len(gold) - true_pos - false_pos - false_neg
    # Python's whole numbers: the product of four counts of 400,000 rows is more than 64 bits hold.
    sides = (true_pos + false_pos) * (true_pos + false_neg) * (true_neg + false_pos) * (true_neg + false_neg)
    return 100 * (true_pos * true_neg - false_pos * false_neg) / sides**0.5 if sides else 0.0


def pearson(gold: Numbers, found: Numbers) -> float | None:
    """Give the correlation of numbers; None where either side is constant or there are fewer than two."""
    if len(gold) < 2 or np.ptp(gold) == 0 or np.ptp(found) == 0:
        return None
    return 100 * float(np.corrcoef(gold, found)[0, 1])


def spearman(gold: Numbers, found: Numbers) -> float | None:
    """Give the correlation of ranks, equal numbers sharing the mean of theirs."""
    return pearson(_ranks(gold), _ranks(found))


def rmse(gold: Numbers, found: Numbers) -> float:
    """Give the root of the mean squared error, in the numbers' own unit."""
    return float(np.sqrt(np.mean((gold - found) ** 2)))


def mae(gold: Numbers, found: Numbers) -> float:
    """Give the mean absolute error, in the numbers' own unit."""
    return float(np.mean(np.abs(gold - found)))


def _counts(gold: Numbers, found: Numbers) -> tuple[int, int, int]:
    """Count true positives, false positives and false negatives."""
    return int((gold & found).sum()), int((~gold & found).sum()), int((gold & ~found).sum())


def _f1_of_counts(true_pos: int, false_pos: int, false_neg: int) -> float | None:
    all_counted = 2 * true_pos + false_pos + false_neg
    return 100 * 2 * true_pos / all_counted if all_counted else None


def _ranks(values: Numbers) -> Numbers:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[places]
