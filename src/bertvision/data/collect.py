"""Examples found in a source, good and bad -> a split, or one line about the first bad one."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic

from bertvision.data.example import Example, OnBad, Split
from bertvision.errors import DataError

CAN_DROP = ", or leave it out with --set data.on_bad=drop"


@dataclass(frozen=True, slots=True)
class Found(Generic[Example]):
    """An example, or what is wrong with it, and where it stands."""

    where: str
    example: Example | None
    problem: str = ""


class BadExampleError(Exception):
    """What is wrong with the example at hand, and what to do."""


def collect(
    found: Iterable[Found[Example]],
    name: str,
    on_bad: OnBad,
    sha256: str | None,
    *,
    what: str = "row",
    advice: str = CAN_DROP,
) -> Split[Example]:
    """Gather the good examples, each with an id of its own; bad ones are counted, or the first of them is refused."""
    examples: dict[str, Example] = {}
    bad: list[str] = []
    for each in found:
        if each.example is None:
            bad.append(f"{each.where}: {each.problem}")
        elif each.example.id in examples:
            bad.append(f"{each.where}: duplicate id; give every {what} an id of its own")
        else:
            examples[each.example.id] = each.example
    if bad and on_bad == "fail":
        count = "" if len(bad) == 1 else f" ({len(bad)} such {what}s; this is the first)"
        raise DataError(f"{bad[0]}{count}{advice}")
    if not examples:
        why = f"all {len(bad)} were dropped, the first: {bad[0]}" if bad else "is it the right file?"
        raise DataError(f"{name}: no {what} in it; {why}")
    return Split(name, tuple(examples.values()), len(bad), sha256)
