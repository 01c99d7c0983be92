"""Questions -> groups of them: by type, question word, answer and context."""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.data.example import Question
from bertvision.predictions.logits import TokenGrid

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
