"""Scores of classes, labels, numbers and tags; in percent but for `rmse` and `mae`.

None is a score that has no value. Own lines rather than scikit-learn's and scipy's, which are no dependencies; the
definitions are theirs. Entities are counted as conlleval (CoNLL-2000 to 2003) does.

`Summed` gives the same scores of thousands of resamples at once, from sums over examples, and `resample_spearman` the
one that no sums give. There a score without a value is NaN.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.predictions.prediction import RowPrediction
from bertvision.scoring.bootstrap import Draw, Floats, draw_counts, resample_sums
from bertvision.scoring.squad import Scores

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


ALMOST_NONE = 1e-12  # of the variance of all rows: a resample of equal numbers has that much by rounding


class Summed(NamedTuple):
    """A score in two steps."""

    parts: Callable[[Numbers, Numbers], Floats]  # golds and answers -> what each example adds, [example, part]
    score: Callable[[Floats], Floats]  # the parts' sums, [part, resample] -> [resample]
    is_proportion: bool = False  # of examples that are right, which the first part counts


class Order(NamedTuple):
    """Where rows stand among sorted numbers."""

    rows: npt.NDArray[np.int64]  # from the lowest number to the highest
    ends: npt.NDArray[np.int64]  # the places in `rows` of the last of each run of equal numbers
    runs: npt.NDArray[np.int64]  # the run that each row is in


def _columns(*columns: Numbers) -> Floats:
    return np.stack(columns, axis=1).astype(np.float64)


def _right(gold: Numbers, found: Numbers) -> Floats:
    return _columns(gold == found, np.ones(len(gold)))


def _right_sets(gold: Numbers, found: Numbers) -> Floats:
    return _columns((gold == found).all(axis=1), np.ones(len(gold)))


def _positives(gold: Numbers, found: Numbers) -> Floats:
    """Count right ones, and those of either side; all of a label set's labels together."""
    gold, found = gold.reshape(len(gold), -1) == 1, found.reshape(len(found), -1) == 1
    return _columns((gold & found).sum(axis=1), gold.sum(axis=1) + found.sum(axis=1))


def _positives_by_class(gold: Numbers, found: Numbers) -> Floats:
    """Count the same for every class, or label of label sets."""
    if gold.ndim == 1:
        classes = np.union1d(gold, found)
        gold, found = (side[:, None] == classes for side in (gold, found))
    both = (gold == 1) & (found == 1)
    return np.concatenate([both, (gold == 1).astype(int) + (found == 1)], axis=1).astype(np.float64)


def _table_of_two(gold: Numbers, found: Numbers) -> Floats:
    gold, found = gold == 1, found == 1
    return _columns(gold & found, gold, found, np.ones(len(gold)))


def _moments(gold: Numbers, found: Numbers) -> Floats:
    x, y = _standard(gold), _standard(found)
    return _columns(x, y, x * x, y * y, x * y, np.ones(len(x)))


def _standard(values: Numbers) -> Floats:
    """Shift and scale, which no correlation sees and without which large numbers would lose their digits."""
    centred: Floats = values - values.mean()
    return centred / (centred.std() or 1.0)


def _squared_errors(gold: Numbers, found: Numbers) -> Floats:
    return _columns((gold - found) ** 2, np.ones(len(gold)))


def _absolute_errors(gold: Numbers, found: Numbers) -> Floats:
    return _columns(np.abs(gold - found), np.ones(len(gold)))


def _share(sums: Floats) -> Floats:
    shares: Floats = sums[0] / sums[1]
    return shares


def _percents(sums: Floats) -> Floats:
    return 100 * _share(sums)


def _f1(sums: Floats) -> Floats:
    return 200 * divided(sums[0], sums[1], np.nan)


def _mean_f1(sums: Floats) -> Floats:
    """Average over the classes that are there or are predicted in a resample."""
    right, either = np.split(sums, 2)
    known = either > 0
    return divided((200 * divided(right, either, 0.0)).sum(axis=0), known.sum(axis=0), np.nan)


def _matthews(sums: Floats) -> Floats:
    right, gold, found, total = sums
    sides = gold * found * (total - gold) * (total - found)
    return 100 * divided(right * total - gold * found, np.sqrt(sides), 0.0)


def _correlation(sums: Floats) -> Floats:
    x, y, xx, yy, xy = sums[:5] / sums[5]
    x_variance, y_variance = xx - x * x, yy - y * y
    is_known = (x_variance > ALMOST_NONE) & (y_variance > ALMOST_NONE)
    return 100 * divided(xy - x * y, np.sqrt(np.where(is_known, x_variance * y_variance, 0.0)), np.nan)


def _root(sums: Floats) -> Floats:
    return np.sqrt(_share(sums))


def _precision(sums: Floats) -> Floats:
    return 100 * divided(sums[0], sums[1], 0.0)


def _recall(sums: Floats) -> Floats:
    return 100 * divided(sums[0], sums[2], 0.0)


def _entity_f1(sums: Floats) -> Floats:
    return 200 * divided(sums[0], sums[1] + sums[2], 0.0)  # what precision and recall give, and 0 as they do


def _tagged_words(sums: Floats) -> Floats:
    return 100 * divided(sums[3], sums[4], 0.0)


def divided(part: Floats, whole: Numbers, otherwise: float) -> Floats:
    """Divide; where there is nothing to divide by, give something else."""
    quotients: Floats = np.divide(part, whole, out=np.full(part.shape, otherwise), where=whole > 0)
    return quotients


ROW_SCORES: dict[str, Summed] = {
    "accuracy": Summed(_right, _percents, is_proportion=True),
    "exact": Summed(_right_sets, _percents, is_proportion=True),
    "f1": Summed(_positives, _f1),
    "micro_f1": Summed(_positives, _f1),
    "macro_f1": Summed(_positives_by_class, _mean_f1),
    "matthews": Summed(_table_of_two, _matthews),
    "pearson": Summed(_moments, _correlation),
    "rmse": Summed(_squared_errors, _root),
    "mae": Summed(_absolute_errors, _share),
}
# For sentences the golds' columns are entities and words, the answers' right entities, entities and right words.
TAG_SCORES = {
    name: Summed(lambda gold, found: _columns(found[:, 0], found[:, 1], gold[:, 0], found[:, 2], gold[:, 1]), score)
    for name, score in {"f1": _entity_f1, "precision": _precision, "recall": _recall, "accuracy": _tagged_words}.items()
}


class Compared(NamedTuple):
    """A score, and what it compares: golds and the answers of several models."""

    score: Summed
    gold: Numbers
    sides: Sequence[Numbers]


def resample_scores(compared: Mapping[str, Compared], draw: Draw) -> dict[str, Floats]:
    """Return each score of several models on the same resamples, [model, resample]; NaN where there is none."""
    if not compared:
        return {}
    parts = [each.score.parts(each.gold, side) for each in compared.values() for side in each.sides]
    sums = resample_sums(np.concatenate(parts, axis=1), draw.units, draw.resamples, draw.seed)
    blocks = iter(np.split(sums, np.cumsum([each.shape[1] for each in parts])[:-1]))
    return {metric: np.stack([each.score.score(next(blocks)) for _ in each.sides]) for metric, each in compared.items()}


def resample_spearman(gold: Numbers, models: Sequence[Numbers], resamples: int, seed: int) -> Floats:
    """Return models' correlations in percent on the same resamples, [model, resample]; NaN where all are equal."""
    orders = [_order(side) for side in (gold, *models)]
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
    """Return each row's rank among the drawn ones, less the mean of all ranks; equal numbers share theirs."""
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
