"""How well each class, label or entity type is found."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bertvision.metrics.tags import entities
from bertvision.tables import Table, number_cell, short_name
from bertvision.tasks.task import Kind

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


def count_types(kind: Kind, labels: Sequence[str], golds: Sequence[Any], given: Sequence[Any]) -> dict[str, TypeCounts]:
    """Count by class, by label of label sets, or by entity type; label sets and entities also all together."""
    pairs = [
        (_named(kind, labels, gold), _named(kind, labels, found)) for gold, found in zip(golds, given, strict=True)
    ]
    gold = Counter(name for one, _ in pairs for name, *_ in one)
    found = Counter(name for _, other in pairs for name, *_ in other)
    right = Counter(name for one, other in pairs for name, *_ in one & other)
    names = sorted(gold | found) if kind == "tags" else labels
    counts = {name: TypeCounts(gold[name], found[name], right[name]) for name in names}
    if kind in ("tags", "labels"):
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


def _named(kind: Kind, labels: Sequence[str], label: Any) -> set[tuple[Any, ...]]:  # noqa: ANN401 (of its kind)
    """Give what is to be found in one example, the type's name first."""
    match kind:
        case "tags":
            return {(each.type, each.first, each.end) for each in entities(label)}
        case "labels":
            return {(name,) for name, is_on in zip(labels, label, strict=True) if is_on}
        case _:
            return {(labels[label],)}
