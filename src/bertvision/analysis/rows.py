"""Examples of any task but spans and one model's predictions -> numbers to compare, and words to show."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertvision.metrics.rows import Labelled, Predicted, gold_of, labels_for
from bertvision.metrics.scores import Numbers
from bertvision.metrics.tags import entities
from bertvision.predictions.labels import RowPrediction
from bertvision.predictions.tags import TagPrediction
from bertvision.tasks.task import ChoiceRow, Kind, Question, Sentence

NOUNS: Mapping[Kind, str] = {"tags": "sentence", "answerable": "question"}


def noun_of(kind: Kind) -> str:
    """Name one example of a task."""
    return NOUNS.get(kind, "row")


def gold_values(kind: Kind, examples: Sequence[Labelled]) -> Numbers:
    """Give what predictions are compared with, [example] or [example, label]; of sentences their entities and words."""
    golds = [gold_of(example) for example in examples]
    return np.array([(len(entities(tags)), len(tags)) for tags in golds]) if kind == "tags" else np.array(golds)


def found_values(metric: str, examples: Sequence[Labelled], predictions: Sequence[Predicted]) -> Numbers | None:
    """Give what a metric compares with the golds; of sentences right entities, entities and right words."""
    tagged = [each.tags for each in predictions if isinstance(each, TagPrediction)]
    if tagged:
        golds = [gold_of(example) for example in examples]
        return np.array([_tag_counts(*pair) for pair in zip(golds, tagged, strict=True)])
    return labels_for(metric, [each for each in predictions if isinstance(each, RowPrediction)])


def are_right(examples: Sequence[Labelled], predictions: Sequence[Predicted]) -> list[bool]:
    """Tell which examples' predictions equal the golds in all: class, label set or tags."""
    return [gold_of(example) == label_of(each) for example, each in zip(examples, predictions, strict=True)]


def label_of(prediction: Predicted) -> Any:  # noqa: ANN401 (as its kind has it)
    """Give what a model says of an example."""
    return prediction.tags if isinstance(prediction, TagPrediction) else prediction.label


def texts_of(example: Labelled) -> dict[str, str]:
    """Give an example's texts, each with what it is called."""
    match example:
        case Question():
            return {"question": example.text, "context": example.context}
        case Sentence():
            return {"words": " ".join(example.words)}
        case ChoiceRow():
            return {"context": example.context} | {f"ending {n}": text for n, text in enumerate(example.endings)}
        case _:
            names = ("text 1", "text 2") if len(example.texts) > 1 else ("text",)
            return dict(zip(names, example.texts, strict=True))


def shown(kind: Kind, example: Labelled, label: Any, labels: Sequence[str]) -> Any:  # noqa: ANN401 (of its kind)
    """Give a label as a reader wants it: names, a number, or entities with their words."""
    match kind:
        case "tags":
            assert isinstance(example, Sentence)
            return [f"{each.type}: {' '.join(example.words[each.first : each.end])}" for each in entities(label)]
        case "labels":
            return [name for name, is_on in zip(labels, label, strict=True) if is_on]
        case "number":
            return label
        case _:
            return labels[label]


def _tag_counts(gold: Sequence[str], found: Sequence[str]) -> tuple[int, int, int]:
    one, other = set(entities(gold)), set(entities(found))
    return len(one & other), len(other), sum(a == b for a, b in zip(gold, found, strict=True))
