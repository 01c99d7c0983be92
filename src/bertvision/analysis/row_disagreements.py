"""Examples of any task but spans that two models answer differently, with what a reader needs to see why."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from bertvision.analysis.disagreements import lay_out
from bertvision.analysis.outcomes import OUTCOMES
from bertvision.analysis.rows import label_of, shown, texts_of
from bertvision.metrics.rows import Labelled, Predicted, gold_of
from bertvision.tasks.catalog import TASKS
from bertvision.tasks.task import Kind, TaskName

MOST_LETTERS = 400  # of a text that are printed
EMPTY = "(none)"


class RowDisagreement(NamedTuple):
    """One example that two models answer differently; answers are names, numbers or lists of labels or entities."""

    id: str
    better: str  # only A right, only B right, neither right; of numbers A nearer, B nearer
    texts: dict[str, str]
    gold: Any
    a: Any
    b: Any


def find_row_disagreements(
    task: TaskName,
    examples: Sequence[Labelled],
    labels: Sequence[str],
    a: Sequence[Predicted],
    b: Sequence[Predicted],
    count: int,
) -> list[RowDisagreement]:
    """Give the first examples that differ, in the order of the gold file; numbers with the most unlike errors first."""
    kind = TASKS[task].kind
    differing = [each for each in zip(examples, a, b, strict=True) if label_of(each[1]) != label_of(each[2])]
    if kind == "number":
        differing.sort(key=lambda each: -abs(abs(_error(each[0], each[1])) - abs(_error(each[0], each[2]))))
    return [_disagreement(kind, labels, *each) for each in differing[:count]]


def to_row_texts(found: Sequence[RowDisagreement]) -> list[str]:
    """Lay out disagreements in 80 columns, numbered."""
    return [_to_text(each, number) for number, each in enumerate(found, start=1)]


def _disagreement(kind: Kind, labels: Sequence[str], example: Labelled, a: Predicted, b: Predicted) -> RowDisagreement:
    answers = [gold_of(example), label_of(a), label_of(b)]
    gold, one, other = (shown(kind, example, each, labels) for each in answers)
    return RowDisagreement(example.id, _better(kind, example, a, b), texts_of(example), gold, one, other)


def _better(kind: Kind, example: Labelled, a: Predicted, b: Predicted) -> str:
    if kind == "number":
        one, other = (abs(_error(example, side)) for side in (a, b))
        return "both as near" if one == other else "A nearer" if one < other else "B nearer"
    gold = gold_of(example)
    return f"{OUTCOMES[label_of(a) == gold, label_of(b) == gold]} right"


def _error(example: Labelled, prediction: Predicted) -> float:
    error: float = label_of(prediction) - gold_of(example)
    return error


def _to_text(found: RowDisagreement, number: int) -> str:
    answers = {"gold": found.gold, "A": found.a, "B": found.b}
    labelled = {name: _printed(value) for name, value in answers.items()} | {
        name: text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]} ..." for name, text in found.texts.items()
    }
    return lay_out(f"{number}. {found.better}: {found.id}", labelled, EMPTY)


def _printed(value: Any) -> str:  # noqa: ANN401 (of its kind)
    if isinstance(value, list):
        return "; ".join(value)
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
