"""Who of two models is right on which examples."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bertvision.tables import Table, short_name

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
