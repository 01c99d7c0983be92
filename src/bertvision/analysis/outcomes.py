"""Who of two models is right on which examples."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bertvision.analysis.groups import Grouping
from bertvision.analysis.scored import ScoredAnswers
from bertvision.tables import Table, short_name
from bertvision.tasks.task import Question

LETTERS = 30  # of a group's name in a table
OUTCOMES = {(True, True): "both", (True, False): "only A", (False, True): "only B", (False, False): "neither"}


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


def outcome_of(question: Question, a: ScoredAnswers, b: ScoredAnswers) -> str:
    """Name who equals a gold: both, only A, only B or neither."""
    return OUTCOMES[a.is_right(question), b.is_right(question)]


def count_outcomes(
    grouping: Grouping, questions: Sequence[Question], a: ScoredAnswers, b: ScoredAnswers
) -> dict[str, Outcomes]:
    """Count who is right, by group and for all questions."""
    return {name: _count(group, a, b) for name, group in {**grouping.groups, "all": list(questions)}.items()}


def count_right(a: Sequence[bool], b: Sequence[bool]) -> Outcomes:
    """Count who is right, example by example."""
    found = Counter(zip(a, b, strict=True))
    return Outcomes(*(found[pair] for pair in OUTCOMES))


def outcome_section(
    outcomes: Mapping[str, Outcomes], note: str, title: str = "Right by exact match", noun: str = "questions"
) -> Table:
    """Lay out who is right by group; a group without examples has empty cells."""
    rows = tuple(
        (short_name(name, LETTERS), *(f"{count:,}" if each.total else "" for count in each), f"{each.total:,}")
        for name, each in outcomes.items()
    )
    return Table(title, (noun, *OUTCOMES.values(), "total"), rows, note)


def _count(questions: Sequence[Question], a: ScoredAnswers, b: ScoredAnswers) -> Outcomes:
    return count_right(*([model.is_right(question) for question in questions] for model in (a, b)))
