"""How well each class, label or entity type is found."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bertvision.tables import Table, number_cell, short_name

Named = set[tuple[Any, ...]]  # what is found in one example, the name of its type first
ALL = "all"
LETTERS = 20  # of a name in a table, so that two models fit into 80 columns


class TypeCounts(NamedTuple):
    """How often one type is there, is given, and is given rightly; shares are in percent."""

    gold: int
    found: int
    right: int

    @property
    def precision(self) -> float | None:
        """Give how much of what was given is right."""
        return 100 * self.right / self.found if self.found else None

    @property
    def recall(self) -> float | None:
        """Give how much of what is there was given."""
        return 100 * self.right / self.gold if self.gold else None

    @property
    def f1(self) -> float | None:
        """Give the harmonic mean of both; None where the type is neither there nor given."""
        return 200 * self.right / (self.gold + self.found) if self.gold + self.found else None

    def as_dict(self) -> dict[str, Any]:
        """Give counts and shares as JSON values."""
        return self._asdict() | {"precision": self.precision, "recall": self.recall, "f1": self.f1}


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


def _type_row(name: str, counts: Mapping[str, Mapping[str, TypeCounts]]) -> tuple[str, ...]:
    found = [of_model.get(name) for of_model in counts.values()]
    gold = next(f"{each.gold:,}" for each in found if each is not None)
    shares = ((None, None, None) if each is None else (each.precision, each.recall, each.f1) for each in found)
    return (short_name(name, LETTERS), gold, *(number_cell(share) for three in shares for share in three))
