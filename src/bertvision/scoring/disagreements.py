"""Who of two models is right on which examples, and where they differ, with all that a reader needs to see why."""

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bertvision.data.example import Question
from bertvision.tables import Table, short_name

COLUMNS = 80
AROUND = 90  # characters of context on each side of an answer
LABEL = 9  # columns before the text
MOST_LETTERS = 400  # of a text that are printed
NOTHING, EMPTY = "(no answer)", "(none)"
LETTERS = 30  # of a group's name in a table
OUTCOMES = {(True, True): "both", (True, False): "only A", (False, True): "only B", (False, False): "neither"}


class Disagreement(NamedTuple):
    """One example on which two models differ."""

    plain: dict[str, Any]  # as JSON values
    head: str  # who is right, and which example it is
    printed: Mapping[str, str]  # what a reader needs to see why, each behind what it is called
    empty: str  # what is printed for an empty text


class Outcomes(NamedTuple):
    """How many examples both, one or none of two models got right."""

    both: int
    only_a: int
    only_b: int
    neither: int

    @property
    def total(self) -> int:
        """Count the examples."""
        return sum(self)


def count_right(pairs: Sequence[tuple[bool, ...]]) -> Outcomes:
    """Count who is right: A and B of each example."""
    found: Counter[tuple[bool, ...]] = Counter(pairs)
    return Outcomes(*(found[pair] for pair in OUTCOMES))


def outcome_section(outcomes: Mapping[str, Outcomes], note: str, title: str, nouns: str) -> Table:
    """Lay out who is right by group; a group without examples has empty cells."""
    rows = tuple(
        (short_name(name, LETTERS), *(f"{count:,}" if each.total else "" for count in each), f"{each.total:,}")
        for name, each in outcomes.items()
    )
    return Table(title, (nouns, *OUTCOMES.values(), "total"), rows, note)


def to_texts(found: Sequence[Disagreement]) -> list[str]:
    """Lay out disagreements in 80 columns, numbered."""
    return [lay_out(f"{number}. {each.head}", each.printed, each.empty) for number, each in enumerate(found, start=1)]


def shortened(text: str) -> str:
    """Cut a text that is too long to be printed."""
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]} ..."


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
    """Return a heading and, below it, texts of 80 columns, each behind what it is called."""
    filled = (_filled(label, _one_line(text) or empty) for label, text in labelled.items())
    return "\n".join([_cut_head(_one_line(head)), *filled])


def place_to_show(question: Question, answers: Sequence[str]) -> tuple[int, int]:
    """Find the first gold, else an answer that a model gave, else the beginning of the context."""
    for text, start in question.answers:
        if start >= 0 and question.context.startswith(text, start):
            return start, len(text)
    texts = [*(answer.text for answer in question.answers), *answers]
    places = ((question.context.find(text), len(text)) for text in texts if text)
    return next((place for place in places if place[0] >= 0), (0, 0))


def _filled(label: str, text: str) -> str:
    return textwrap.fill(text, COLUMNS, initial_indent=f"{label:>{LABEL}}  ", subsequent_indent=" " * (LABEL + 2))


def _one_line(text: str) -> str:
    """Join lines and drop what would move a terminal's cursor."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _cut_head(text: str) -> str:
    return text if len(text) <= COLUMNS else f"{text[: COLUMNS - 3]}..."
