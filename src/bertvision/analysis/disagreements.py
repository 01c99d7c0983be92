"""Questions that one of two models gets right, with all that a reader needs to see why."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bertvision.analysis.outcomes import outcome_of
from bertvision.analysis.scored import ScoredAnswers
from bertvision.tasks.task import Question

COLUMNS = 80
AROUND = 90  # characters of context on each side of an answer
LABEL = 9  # columns before the text
NOTHING = "(no answer)"


class Disagreement(NamedTuple):
    """One question that exactly one of two models gets right."""

    id: str
    article: str
    right: str  # only A or only B
    question: str
    golds: tuple[str, ...]
    a: str
    b: str
    snippet: str  # of the context, the answer in it between « and »


def find_disagreements(
    questions: Sequence[Question], a: ScoredAnswers, b: ScoredAnswers, count: int
) -> list[Disagreement]:
    """Give the first questions, in the order of the gold file, that exactly one of two models gets right."""
    found: list[Disagreement] = []
    for question in questions:
        if len(found) == count:
            break
        if (right := outcome_of(question, a, b)).startswith("only"):
            found.append(_disagreement(question, right, a.texts[question.id], b.texts[question.id]))
    return found


def to_texts(found: Sequence[Disagreement]) -> list[str]:
    """Lay out disagreements in 80 columns, numbered."""
    return [_to_text(each, number) for number, each in enumerate(found, start=1)]


def snippet_of(context: str, start: int, length: int) -> str:
    """Cut out the context around an answer, at blanks, with the answer between « and »."""
    first, last = max(0, start - AROUND), min(len(context), start + length + AROUND)
    before, after = context[first:start], context[start + length : last]
    if first and " " in before:
        before = f"... {before.partition(' ')[2]}"
    if last < len(context) and " " in after:
        after = f"{after.rpartition(' ')[0]} ..."
    answer = context[start : start + length]
    return f"{before}«{answer}»{after}" if answer else f"{before}{after}"


def lay_out(head: str, labelled: Mapping[str, str], empty: str = NOTHING) -> str:
    """Give a heading and, below it, texts of 80 columns, each behind what it is called."""
    filled = (_filled(label, _one_line(text) or empty) for label, text in labelled.items())
    return "\n".join([_shortened(_one_line(head), COLUMNS), *filled])


def _disagreement(question: Question, right: str, a: str, b: str) -> Disagreement:
    golds = tuple(dict.fromkeys(answer.text for answer in question.answers))
    snippet = snippet_of(question.context, *_place_to_show(question, (a, b)))
    return Disagreement(question.id, question.title, right, question.text, golds, a, b, snippet)


def _place_to_show(question: Question, answers: Sequence[str]) -> tuple[int, int]:
    """Find the first gold, else an answer that a model gave, else the beginning of the context."""
    for text, start in question.answers:
        if start >= 0 and question.context.startswith(text, start):
            return start, len(text)
    texts = [*(answer.text for answer in question.answers), *answers]
    places = ((question.context.find(text), len(text)) for text in texts if text)
    return next((place for place in places if place[0] >= 0), (0, 0))


def _to_text(found: Disagreement, number: int) -> str:
    article = f" ({found.article})" if found.article else ""
    labelled = {"question": found.question, "gold": " | ".join(found.golds), "A": found.a, "B": found.b}
    return lay_out(f"{number}. {found.right} right: {found.id}{article}", labelled | {"context": found.snippet})


def _filled(label: str, text: str) -> str:
    return textwrap.fill(text, COLUMNS, initial_indent=f"{label:>{LABEL}}  ", subsequent_indent=" " * (LABEL + 2))


def _one_line(text: str) -> str:
    """Join lines and drop what would move a terminal's cursor."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _shortened(text: str, columns: int) -> str:
    return text if len(text) <= columns else f"{text[: columns - 3]}..."
