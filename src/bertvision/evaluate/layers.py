"""Which layer speaks for an answer and which against it: means over questions of what each part of a head adds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.tables import Page, Table, counted, number_cell

Parts = npt.NDArray[np.float64]  # [question, part]: what each part of a head adds to the score of one of its spans
ARM = 10  # characters of a bar on each side of its middle
# A column's name in JSON, and its head in 80 columns.
SCORES = {"weight": "weight", "best": "best", "gold": "gold", "null": "none", "difference": "best-none"}
TYPES = {"has_answer": "has answer", "no_answer": "no answer", "has_minus_no_answer": "apart"}


class QuestionParts(NamedTuple):
    """What every part of a head adds to the scores (start + end logit) of spans."""

    best: Parts  # of each question's best span, whether or not it was given as the answer
    gold: Parts  # of the gold spans, of the questions that have one
    null: Parts | None  # of "no answer"; None where the task has none


@dataclass(frozen=True)
class PartMeans:
    """One part's means; None where there is nothing to average."""

    name: str
    weight: float | None = None  # the layer's share in a learned mix
    best: float | None = None
    gold: float | None = None
    null: float | None = None
    difference: float | None = None  # best - null
    has_answer: float | None = None  # the difference on answerable questions
    no_answer: float | None = None  # and on unanswerable ones
    has_minus_no_answer: float | None = None  # has_answer - no_answer


@dataclass(frozen=True)
class LayerMeans:
    """A head on a file, part by part."""

    model: str
    head: str
    data: str
    questions: int
    golds: int
    parts: list[PartMeans]
    total: PartMeans  # the sums over the parts: the mean scores themselves

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return asdict(self)

    def as_page(self) -> Page:
        """Return everything as it is printed."""
        head = f"{counted(self.questions, 'question')} of {self.data}, {self.golds:,} with a gold span"
        sections = [self._score_section()]
        if self.total.has_minus_no_answer is not None:
            sections.append(self._type_section())
        return Page((head, f"head {self.head} of {self.model}"), sections, [])

    def _score_section(self) -> Table:
        has_null = self.total.null is not None
        shown = {name: head for name, head in SCORES.items() if getattr(self.parts[0], name) is not None}
        note = (
            "Means of what each part adds to the score (start + end logit) of a question's best span, of its gold span"
            f"{' and of no answer' if has_null else ''}. The last row is the sum of the parts: the scores themselves."
        )
        barred, sides = ("difference", ("against", "for")) if has_null else ("best", ("-", "+"))
        return self._section("What each layer says", shown, barred, sides, note)

    def _type_section(self) -> Table:
        note = (
            "Best span minus no answer, on questions that have an answer and on others; a layer tells one from the "
            "other by the difference of the two."
        )
        title = "Which layer tells answerable questions from others"
        return self._section(title, TYPES, "has_minus_no_answer", ("wrongly", "rightly"), note)

    def _section(self, title: str, shown: Mapping[str, str], barred: str, sides: tuple[str, str], note: str) -> Table:
        lengths = [getattr(each, barred) for each in self.parts]
        longest = max(map(abs, lengths)) or 1.0
        bars = [*(_bar(length / longest) for length in lengths), ""]
        rows = tuple(
            (each.name, *(_cell(each, name) for name in shown), bar)
            for each, bar in zip((*self.parts, self.total), bars, strict=True)
        )
        return Table(title, ("part", *shown.values(), f"{sides[0]:>{ARM}}│{sides[1]:<{ARM}}"), rows, note)


def mean_parts(
    names: Sequence[str],
    weights: Sequence[float] | None,
    found: QuestionParts,
    is_impossible: npt.NDArray[np.bool_] | None,
) -> tuple[list[PartMeans], PartMeans]:
    """Average over questions: every part, and their sum. `is_impossible` is None where the golds are unknown."""
    means: dict[str, list[float] | None] = {"best": _means(found.best), "gold": _means(found.gold)}
    if found.null is not None:
        difference = found.best - found.null
        means |= {"null": _means(found.null), "difference": _means(difference)}
        if is_impossible is not None:
            means |= _means_by_type(difference, is_impossible)
    known = {column: values for column, values in means.items() if values is not None}
    shares = [*(weights or ()), *[None] * len(names)]  # skip and bias, which come last, have none
    parts = [
        PartMeans(name, shares[place], **{column: values[place] for column, values in known.items()})
        for place, name in enumerate(names)
    ]
    return parts, PartMeans("sum", **{column: sum(values) for column, values in known.items()})


def _means_by_type(difference: Parts, is_impossible: npt.NDArray[np.bool_]) -> dict[str, list[float] | None]:
    has_answer, no_answer = _means(difference[~is_impossible]), _means(difference[is_impossible])
    apart = None
    if has_answer is not None and no_answer is not None:
        apart = [one - other for one, other in zip(has_answer, no_answer, strict=True)]
    return {"has_answer": has_answer, "no_answer": no_answer, "has_minus_no_answer": apart}


def _means(parts: Parts) -> list[float] | None:
    return parts.mean(axis=0).tolist() if len(parts) else None


def _cell(part: PartMeans, column: str) -> str:
    return number_cell(getattr(part, column), 3, "" if column == "weight" else "+")


def _bar(share: float) -> str:
    """Draw a share of the longest bar to the right, or to the left where it is negative; dots keep Markdown's place."""
    filled = "█" * round(abs(share) * ARM)
    left, right = (filled, "") if share < 0 else ("", filled)
    return f"{left:·>{ARM}}│{right:·<{ARM}}"
