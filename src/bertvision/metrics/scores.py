"""Scores of classes, labels, numbers and tags; in percent but for `rmse` and `mae`.

None is a score that has no value. Own lines rather than scikit-learn's and scipy's, which are no dependencies; the
definitions are theirs. Entities are counted as conlleval (CoNLL-2000 to 2003) does.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.metrics.squad import Scores
from bertvision.predictions.prediction import RowPrediction

Numbers = npt.NDArray[Any]  # one for each row; for label sets [row, label], 0 or 1
OWN_UNIT = ("rmse", "mae")  # of the labels: not in percent
Metric = Callable[[Numbers, Numbers], float | None]
PAPER = "paper_v1_"  # before a score by the 2020 system's rule
TagSequence = Sequence[str]  # of the words of one sentence, in IOB2


class Entity(NamedTuple):
    """Words [first, end) of one sentence."""

    first: int
    end: int
    type: str


def accuracy(gold: Numbers, found: Numbers) -> float:
    """Return the share of rows whose class is right."""
    return 100 * float(np.mean(gold == found))


def f1(gold: Numbers, found: Numbers, positive: int = 1) -> float | None:
    """Return the F1 of one class; None where it is neither there nor predicted."""
    return _f1_of_counts(*_counts(gold == positive, found == positive))


def macro_f1(gold: Numbers, found: Numbers) -> float | None:
    """Return the mean F1 of the classes, or of the labels of label sets, that are there or are predicted."""
    if gold.ndim == 2:
        columns = [f1(*pair) for pair in zip(gold.T, found.T, strict=True)]
    else:
        columns = [f1(gold, found, int(each)) for each in np.union1d(gold, found)]
    known = [each for each in columns if each is not None]
    return float(np.mean(known)) if known else None


def micro_f1(gold: Numbers, found: Numbers) -> float | None:
    """Return the F1 of all labels of all rows together."""
    return f1(gold.reshape(-1), found.reshape(-1))


def exact_sets(gold: Numbers, found: Numbers) -> float:
    """Return the share of rows all of whose labels are right."""
    return 100 * float(np.mean((gold == found).all(axis=1)))


def matthews(gold: Numbers, found: Numbers) -> float:
    """Return Matthews' correlation of two classes, 0 where either side knows one class alone (as in scikit-learn)."""
    true_pos, false_pos, false_neg = _counts(gold == 1, found == 1)
    true_neg = len(gold) - true_pos - false_pos - false_neg
    # Python's whole numbers: the product of four counts of 400,000 rows is more than 64 bits hold.
    sides = (true_pos + false_pos) * (true_pos + false_neg) * (true_neg + false_pos) * (true_neg + false_neg)
    return 100 * (true_pos * true_neg - false_pos * false_neg) / sides**0.5 if sides else 0.0


def pearson(gold: Numbers, found: Numbers) -> float | None:
    """Return the correlation of numbers; None where either side is constant or there are fewer than two."""
    if len(gold) < 2 or np.ptp(gold) == 0 or np.ptp(found) == 0:
        return None
    return 100 * float(np.corrcoef(gold, found)[0, 1])


def spearman(gold: Numbers, found: Numbers) -> float | None:
    """Return the correlation of ranks, equal numbers sharing the mean of theirs."""
    return pearson(_ranks(gold), _ranks(found))


def rmse(gold: Numbers, found: Numbers) -> float:
    """Return the root of the mean squared error, in the numbers' own unit."""
    return float(np.sqrt(np.mean((gold - found) ** 2)))


def mae(gold: Numbers, found: Numbers) -> float:
    """Return the mean absolute error, in the numbers' own unit."""
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


def score_tags(gold: Sequence[TagSequence], found: Sequence[TagSequence]) -> Scores:
    """Score the tags of sentences: an entity is right if its first word, last word and type are.

    As in conlleval, precision is 0 where nothing was found, and recall where there is nothing to find.
    """
    gold_sets, found_sets = ([set(entities(tags)) for tags in side] for side in (gold, found))
    right = sum(len(one & other) for one, other in zip(gold_sets, found_sets, strict=True))
    precision = _percent(right, sum(map(len, found_sets)))
    recall = _percent(right, sum(map(len, gold_sets)))
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    pairs = [pair for one, other in zip(gold, found, strict=True) for pair in zip(one, other, strict=True)]
    accuracy = _percent(sum(one == other for one, other in pairs), len(pairs))
    return {"precision": precision, "recall": recall, "f1": f1, "accuracy": accuracy}


def entities(tags: TagSequence) -> list[Entity]:
    """Find the entities of one sentence; an I that continues nothing begins one.

    Files are read as IOB2; a model of somebody's own may also end entities with E, or have tags without a prefix.
    """
    found: list[Entity] = []
    for place, tag in enumerate(tags):
        if tag == "O":
            continue
        prefix, kind = (tag[0], tag[2:]) if tag[1:2] == "-" else ("I", tag)
        last = found[-1] if found else None
        if prefix in "IE" and last is not None and last.end == place and last.type == kind:
            found[-1] = last._replace(end=place + 1)
        else:
            found.append(Entity(place, place + 1, kind))
    return found


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "rmse": rmse,
    "mae": mae,
    "macro_f1": macro_f1,
    "micro_f1": micro_f1,
    "exact": exact_sets,
}


def labels_for(metric: str, rows: Sequence[RowPrediction]) -> Numbers | None:
    """Return what a metric compares; None where it is by the 2020 system's rule and there are no answers by it."""
    if not metric.startswith(PAPER):
        return np.array([row.label for row in rows])
    paper = [row.paper_label for row in rows]
    return None if None in paper else np.array(paper)  # another program's file has one answer to each question
