"""Two models' classes for the same texts: how often each is right, on what, and where they disagree (SPEC 10.4)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bertvision.analysis.groups import WORD
from bertvision.errors import DataError
from bertvision.tasks.task import TextRow

Classes = Mapping[str, int]  # by row


class ClassScores(NamedTuple):
    """One model on labelled rows; shares are 0 to 1, and None where there is nothing to divide by."""

    rows: int
    right: int
    accuracy: float
    recall_by_class: tuple[float | None, ...]  # of the rows of a class, those that were given it
    positive: "PositiveScores | None"  # None where there are more than two classes
    mean_words: tuple[float | None, ...]  # of the first and the second text of what it gets right


class PositiveScores(NamedTuple):
    """What one of two classes, called positive, was found and missed by."""

    true_positives: int
    recall: float | None
    true_negatives: int
    true_negative_rate: float | None
    positive_rate: float  # how often it was given


class ClassDisagreement(NamedTuple):
    """A row that two models put into different classes."""

    id: str
    texts: tuple[str, ...]
    gold: int
    a: int
    b: int


class LabelAnalysis(NamedTuple):
    """Two models side by side."""

    a: ClassScores
    b: ClassScores
    mean_words: tuple[float | None, ...]  # of the first and the second text of all rows
    disagreements: tuple[ClassDisagreement, ...]  # all of them, in the order of the rows


def analyze_labels(rows: Sequence[TextRow], a: Classes, b: Classes, classes: int, positive: int = 1) -> LabelAnalysis:
    """Score two models' classes and list their disagreements; of two classes, `positive` is the one to be found."""
    golds = _golds(rows)
    for name, given in (("A", a), ("B", b)):
        _check_classes(name, golds, given, classes)
    return LabelAnalysis(
        a=score_classes(rows, a, classes, positive),
        b=score_classes(rows, b, classes, positive),
        mean_words=mean_words(rows),
        disagreements=tuple(
            ClassDisagreement(row.id, row.texts, golds[row.id], a[row.id], b[row.id])
            for row in rows
            if a[row.id] != b[row.id]
        ),
    )


def score_classes(rows: Sequence[TextRow], given: Classes, classes: int, positive: int = 1) -> ClassScores:
    """Compare one model's classes with the golds."""
    golds = _golds(rows)
    right = [row for row in rows if given[row.id] == golds[row.id]]
    return ClassScores(
        rows=len(rows),
        right=len(right),
        accuracy=len(right) / len(rows),
        recall_by_class=tuple(_recall(golds, given, each) for each in range(classes)),
        positive=_positive_scores(golds, given, positive) if classes == 2 else None,
        mean_words=mean_words(right, texts=len(rows[0].texts)),
    )


def mean_words(rows: Sequence[TextRow], texts: int | None = None) -> tuple[float | None, ...]:
    """Count the words of each text, as runs of the letters a to z in lower case, and average over rows."""
    places = range(len(rows[0].texts) if texts is None else texts)
    return tuple(_mean([len(WORD.findall(row.texts[place].lower())) for row in rows]) for place in places)


def _positive_scores(golds: Classes, given: Classes, positive: int) -> PositiveScores:
    negative = 1 - positive
    return PositiveScores(
        true_positives=_count_right(golds, given, positive),
        recall=_recall(golds, given, positive),
        true_negatives=_count_right(golds, given, negative),
        true_negative_rate=_recall(golds, given, negative),
        positive_rate=sum(given[row] == positive for row in golds) / len(golds),
    )


def _recall(golds: Classes, given: Classes, label: int) -> float | None:
    of_class = sum(gold == label for gold in golds.values())
    return _count_right(golds, given, label) / of_class if of_class else None


def _count_right(golds: Classes, given: Classes, label: int) -> int:
    return sum(gold == label == given[row] for row, gold in golds.items())


def _mean(counts: Sequence[int]) -> float | None:
    return sum(counts) / len(counts) if counts else None


def _golds(rows: Sequence[TextRow]) -> dict[str, int]:
    golds = {row.id: row.label for row in rows if isinstance(row.label, int)}
    if not rows or len(golds) < len(rows):
        raise DataError(
            f"{len(rows) - len(golds):,} of {len(rows):,} rows have no class of their own to compare with; "
            "give rows with different ids and a class each"
        )
    return golds


def _check_classes(name: str, golds: Classes, given: Classes, classes: int) -> None:
    if odd := golds.keys() ^ given.keys():
        raise DataError(
            f"{name}: {len(odd):,} rows are either not in the gold file or not predicted, such as {min(odd)!r}; "
            "give the file that was predicted for"
        )
    if wrong := {row: each for row, each in given.items() if not 0 <= each < classes}:
        row = min(wrong)
        raise DataError(f"{name}: row {row!r} has class {wrong[row]}; expected 0 to {classes - 1}")
