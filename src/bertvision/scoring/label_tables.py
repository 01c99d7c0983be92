"""How often a model's classes are right, what it takes for what (SPEC 10.4), and how well each type is found.

And questions -> groups of them: by type, question word, answer and context.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.data.example import Question
from bertvision.predictions.logits import TokenGrid
from bertvision.tables import Table, number_cell, short_name

Texts = Sequence[str]
Named = set[tuple[Any, ...]]  # what is found in one example, the name of its type first
ALL = "all"
TYPE_LETTERS = 20  # of a type in a table, so that two models fit into 80 columns
# Of two classes the one to be found; in RTE and QNLI it is class 0.
POSITIVE = ("entailment", "equivalent", "duplicate", "acceptable", "positive")
MOST_COLUMNS = 5  # of a table of confusions; more classes would not fit into 80 columns
LETTERS, FIRST_LETTERS = 10, 18  # of a class in the header and at the beginning of a row
COMMONEST = 15  # confusions that are listed where classes are many


class ClassScores(NamedTuple):
    """One model on labelled rows; shares are 0 to 1, and None where there is nothing to divide by."""

    rows: int
    right: int
    accuracy: float
    positive: "PositiveScores | None"  # None where there are more than two classes
    mean_words: tuple[float | None, ...]  # of each text of what it gets right
    confusions: dict[str, dict[str, int]]  # rows by gold class and given class

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return self._asdict() | {"positive": self.positive._asdict() if self.positive else None}


class PositiveScores(NamedTuple):
    """What one of two classes, called positive, was found and missed by."""

    name: str
    true_positives: int
    recall: float | None
    true_negatives: int
    true_negative_rate: float | None
    positive_rate: float  # how often it was given


class TypeCounts(NamedTuple):
    """How often one type is there, is given, and is given rightly; shares are in percent."""

    gold: int
    predicted: int
    right: int

    @property
    def precision(self) -> float | None:
        """Return how much of what was given is right."""
        return 100 * self.right / self.predicted if self.predicted else None

    @property
    def recall(self) -> float | None:
        """Return how much of what is there was given."""
        return 100 * self.right / self.gold if self.gold else None

    @property
    def f1(self) -> float | None:
        """Return the harmonic mean of both; None where the type is neither there nor given."""
        return 200 * self.right / (self.gold + self.predicted) if self.gold + self.predicted else None

    def as_dict(self) -> dict[str, Any]:
        """Return counts and shares as JSON values."""
        return self._asdict() | {"precision": self.precision, "recall": self.recall, "f1": self.f1}


def score_classes(
    texts: Sequence[Texts], golds: Sequence[int], given: Sequence[int], labels: Sequence[str]
) -> ClassScores:
    """Compare one model's classes with the golds; `texts` are those of each row."""
    right = [each for each, gold, found in zip(texts, golds, given, strict=True) if gold == found]
    counts = Counter(zip(golds, given, strict=True))
    return ClassScores(
        rows=len(golds),
        right=len(right),
        accuracy=len(right) / len(golds),
        positive=_positive_scores(counts, labels) if len(labels) == 2 else None,
        mean_words=mean_words(right, len(texts[0])),
        confusions={
            gold: {name: counts[place, other] for other, name in enumerate(labels)} for place, gold in enumerate(labels)
        },
    )


def positive_class(labels: Sequence[str]) -> int:
    """Return which of two classes is to be found: the one that is named so, else the second."""
    return next((place for place, name in enumerate(labels) if name in POSITIVE), 1)


def mean_words(texts: Sequence[Texts], places: int) -> tuple[float | None, ...]:
    """Count the words of each text, as runs of the letters a to z in lower case, and average over rows."""
    return tuple(_mean([len(WORD.findall(each[place].lower())) for each in texts]) for place in range(places))


def class_section(scores: Mapping[str, ClassScores], names: Sequence[str], all_words: Sequence[float | None]) -> Table:
    """Lay out the models' scores side by side, and the words of the texts, which have these names."""
    rows = [("right", *(f"{each.right:,}" for each in scores.values()), "")]
    rows.append(("right, %", *(_percent(each.accuracy) for each in scores.values()), ""))
    rows += _positive_rows([each.positive for each in scores.values() if each.positive is not None])
    for place, name in enumerate(names):
        words = (number_cell(each.mean_words[place]) for each in scores.values())
        rows.append((f"mean words of {name}, where right", *words, number_cell(all_words[place])))
    return Table("Classes", ("", *scores, "all rows"), tuple(rows), "Words: runs of the letters a to z.")


def confusion_section(model: str, scores: ClassScores) -> Table:
    """Lay out what a model takes for what: a table of few classes, and the commonest confusions of many."""
    labels = tuple(scores.confusions)
    if len(labels) <= MOST_COLUMNS:
        rows = tuple(
            (short_name(gold, FIRST_LETTERS), *(f"{count:,}" for count in given.values()))
            for gold, given in scores.confusions.items()
        )
        header = ("gold", *(short_name(name, LETTERS) for name in labels))
        return Table(f"Confusion matrix of {model}", header, rows, "Rows: gold classes; columns: predicted classes.")
    wrong = {
        (gold, name): count
        for gold, given in scores.confusions.items()
        for name, count in given.items()
        if name != gold and count
    }
    commonest = sorted(wrong, key=lambda pair: -wrong[pair])[:COMMONEST]
    rows = tuple(
        (" -> ".join(short_name(each, 2 * FIRST_LETTERS - 3) for each in (gold, name)), f"{wrong[gold, name]:,}")
        for gold, name in commonest
    )
    return Table(f"Commonest confusions of {model}", ("gold -> given", "rows"), rows)


def count_types(
    golds: Sequence[Named], given: Sequence[Named], names: Sequence[str] | None, *, has_total: bool = False
) -> dict[str, TypeCounts]:
    """Count what is to be found in examples, and what was given, by these names or else by all that occur."""
    gold = Counter(name for one in golds for name, *_ in one)
    found = Counter(name for other in given for name, *_ in other)
    right = Counter(name for one, other in zip(golds, given, strict=True) for name, *_ in one & other)
    listed = sorted(gold | found) if names is None else names
    counts = {name: TypeCounts(gold[name], found[name], right[name]) for name in listed}
    if has_total:
        counts[ALL] = TypeCounts(gold.total(), found.total(), right.total())
    return counts


def type_section(title: str, noun: str, counts: Mapping[str, Mapping[str, TypeCounts]]) -> Table:
    """Lay out types by model; what cannot be divided is an empty cell."""
    models = tuple(counts)
    names = dict.fromkeys(name for of_model in counts.values() for name in of_model if name != ALL)
    if any(ALL in of_model for of_model in counts.values()):
        names[ALL] = None
    header = (noun, "gold", *(f"{share} {model}" for model in models for share in ("prec.", "recall", "F1")))
    return Table(title, header, tuple(_type_row(name, counts) for name in names))


def _positive_scores(counts: Counter[tuple[int, int]], labels: Sequence[str]) -> PositiveScores:
    positive = positive_class(labels)
    negative = 1 - positive
    return PositiveScores(
        name=labels[positive],
        true_positives=counts[positive, positive],
        recall=_recall(counts, positive),
        true_negatives=counts[negative, negative],
        true_negative_rate=_recall(counts, negative),
        positive_rate=(counts[positive, positive] + counts[negative, positive]) / counts.total(),
    )


def _recall(counts: Counter[tuple[int, int]], label: int) -> float | None:
    of_class = counts[label, 0] + counts[label, 1]
    return counts[label, label] / of_class if of_class else None


def _positive_rows(scores: Sequence[PositiveScores]) -> list[tuple[str, ...]]:
    if not scores:
        return []
    name = scores[0].name
    return [
        (f"true positives ({name})", *(f"{each.true_positives:,}" for each in scores), ""),
        ("  recall, %", *(_percent(each.recall) for each in scores), ""),
        ("true negatives", *(f"{each.true_negatives:,}" for each in scores), ""),
        ("  true-negative rate, %", *(_percent(each.true_negative_rate) for each in scores), ""),
        (f"predicted {name}, %", *(_percent(each.positive_rate) for each in scores), ""),
    ]


def _percent(share: float | None) -> str:
    return number_cell(None if share is None else 100 * share)


def _mean(counts: Sequence[int]) -> float | None:
    return sum(counts) / len(counts) if counts else None


def _type_row(name: str, counts: Mapping[str, Mapping[str, TypeCounts]]) -> tuple[str, ...]:
    found = [of_model.get(name) for of_model in counts.values()]
    gold = next(f"{each.gold:,}" for each in found if each is not None)
    shares = ((None, None, None) if each is None else (each.precision, each.recall, each.f1) for each in found)
    return (short_name(name, TYPE_LETTERS), gold, *(number_cell(share) for three in shares for share in three))


Offsets = npt.NDArray[np.int32]  # [token, 2] characters of the context
WORD = re.compile(r"[a-z]+")
QUESTION_WORDS = {"whom": "who", "whose": "who"} | {
    word: word for word in ("what", "who", "when", "where", "which", "why", "how")
}
WORD_GROUPS = ("what", "who", "when", "where", "which", "why", "how many/much", "how", "other")
LENGTHS = {"1": 1, "2": 2, "3": 3, "4-5": 5, "6-10": 10, "11 or more": 1_000_000}  # the most words of a group
QUARTERS = ("first quarter", "second quarter", "third quarter", "last quarter")


class Grouping(NamedTuple):
    """Questions by group, every group listed, also an empty one."""

    title: str
    groups: dict[str, list[Question]]
    note: str = ""


def group_questions(questions: Sequence[Question], pieces: Mapping[str, int] | None = None) -> list[Grouping]:
    """Group questions in every way that the analysis knows; by word pieces where their contexts' are counted."""
    words = {each.id: count_words(each.context) for each in questions}
    return [
        group_types(questions),
        group_words(questions),
        group_answer_lengths(questions),
        group_positions(questions),
        group_context_lengths(questions, words, "words"),
        *([group_context_lengths(questions, pieces, "word pieces")] if pieces is not None else []),
    ]


def group_types(questions: Sequence[Question]) -> Grouping:
    """Group by whether there is an answer."""
    return _grouped(
        "question type",
        ("has answer", "no answer"),
        questions,
        lambda each: ("has answer", "no answer")[not each.answers],
    )


def group_words(questions: Sequence[Question]) -> Grouping:
    """Group by the first question word."""
    note = "The first of these words in the question; who is also whom and whose."
    return _grouped("question word", WORD_GROUPS, questions, lambda each: question_word(each.text), note)


def group_answer_lengths(questions: Sequence[Question]) -> Grouping:
    """Group answerable questions by the words of their first gold."""
    note = "Words of the first gold answer."
    return _grouped("answer length", tuple(LENGTHS), questions, _length_group, note)


def group_positions(questions: Sequence[Question]) -> Grouping:
    """Group answerable questions by where in the context their first gold starts."""
    note = "Where the first gold answer starts, in characters of the context."
    return _grouped("answer position", QUARTERS, questions, _position_group, note)


def group_context_lengths(questions: Sequence[Question], counts: Mapping[str, int], unit: str) -> Grouping:
    """Group by quartiles of the contexts' lengths, given by question; equal lengths stay together."""
    lengths = np.array([counts[each.id] for each in questions])
    places = np.searchsorted(np.quantile(lengths, (0.25, 0.5, 0.75)), lengths)  # a length equal to a bound is below it
    names = [_named_by_length(name, lengths[places == place].tolist()) for place, name in enumerate(QUARTERS)]
    groups: dict[str, list[Question]] = {name: [] for name in names}
    for place, question in zip(places.tolist(), questions, strict=True):
        groups[names[place]].append(question)
    return Grouping(f"context length in {unit}", groups, f"Quarters of the questions by the {unit} of their context.")


def question_word(text: str) -> str:
    """Name the first question word of a question, or `other`."""
    words = WORD.findall(text.lower())
    for word, following in zip(words, [*words, ""][1:], strict=True):
        if word == "how" and following in ("many", "much"):
            return "how many/much"
        if word in QUESTION_WORDS:
            return QUESTION_WORDS[word]
    return "other"


def count_words(text: str) -> int:
    """Count what stands between blanks."""
    return len(text.split())


def count_context_pieces(grid: TokenGrid) -> dict[str, int]:
    """Count the tokens of every question's context, those that several windows share once."""
    counts = np.zeros(len(grid.question_ids), dtype=np.int64)
    before, asked = np.zeros((0, 2), np.int32), -1
    for question, (first, stop) in zip(grid.question_of.tolist(), pairwise(grid.window_at.tolist()), strict=True):
        window = grid.offsets[first:stop]
        context = window[window[:, 0] >= 0]
        counts[question] += len(context) - (_shared(before, context) if question == asked else 0)
        before, asked = context, question
    return dict(zip(grid.question_ids, counts.tolist(), strict=True))


def _grouped(
    title: str,
    names: Sequence[str],
    questions: Sequence[Question],
    group_of: Callable[[Question], str | None],
    note: str = "",
) -> Grouping:
    groups: dict[str, list[Question]] = {name: [] for name in names}
    for question in questions:
        if (name := group_of(question)) is not None:
            groups[name].append(question)
    return Grouping(title, groups, note)


def _length_group(question: Question) -> str | None:
    if not question.answers:
        return None
    words = count_words(question.answers[0].text)
    return next(name for name, most in LENGTHS.items() if words <= most)


def _position_group(question: Question) -> str | None:
    if not question.answers or question.answers[0].start < 0:  # a gold file may leave the place out
        return None
    return QUARTERS[min(3, 4 * question.answers[0].start // len(question.context))]


def _named_by_length(name: str, lengths: Sequence[int]) -> str:
    return f"{name}, {min(lengths)}-{max(lengths)}" if lengths else name


def _shared(before: Offsets, after: Offsets) -> int:
    """Count the tokens that end one window and begin the next; pieces of one character have the same offsets."""
    starts = np.flatnonzero((before == after[0]).all(axis=1)).tolist()
    overlaps = (len(before) - start for start in starts)
    return next((each for each in overlaps if np.array_equal(before[-each:], after[:each])), 0)
