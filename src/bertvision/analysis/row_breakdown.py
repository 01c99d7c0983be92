"""One model's predictions, or two models', for any task but spans: taken apart as their kind allows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertvision.analysis.by_type import TypeCounts, count_types, type_section
from bertvision.analysis.classes import ClassScores, class_section, confusion_section, mean_words, score_classes
from bertvision.analysis.deciles import NumberErrors, decile_section, score_deciles
from bertvision.analysis.rows import label_of, noun_of, texts_of
from bertvision.analysis.sections import Section, number_cell
from bertvision.metrics.rows import Labelled, Predicted, gold_of, score_rows
from bertvision.metrics.squad import Scores
from bertvision.tasks.catalog import TASKS
from bertvision.tasks.task import Kind, TaskName

TITLES: Mapping[Kind, tuple[str, str]] = {"tags": ("By entity type", "type"), "labels": ("By label", "label")}


@dataclass(frozen=True)
class RowBreakdown:
    """What came out, by model; what a task's kind does not have is empty."""

    task: TaskName
    examples: int
    scores: dict[str, Scores]  # the task's own
    types: dict[str, dict[str, TypeCounts]]  # by class, label or entity type
    classes: dict[str, ClassScores]
    mean_words: dict[str, float | None]  # of all rows, by what the text is called
    numbers: dict[str, list[NumberErrors]]  # by tenth of the golds, and last of all

    def as_dict(self) -> dict[str, Any]:
        """Give everything as JSON values."""
        return {
            "task": self.task,
            f"{noun_of(TASKS[self.task].kind)}s": self.examples,
            "scores": self.scores,
            "types": {model: {name: each.as_dict() for name, each in of.items()} for model, of in self.types.items()},
            "classes": {model: _plain(each) for model, each in self.classes.items()},
            "mean_words": self.mean_words,
            "numbers": {model: [each._asdict() for each in of] for model, of in self.numbers.items()},
        }

    def sections(self) -> list[Section]:
        """Give everything as tables."""
        sections = [_score_section(self.task, self.scores)]
        if self.classes:
            sections.append(class_section(self.classes, tuple(self.mean_words), tuple(self.mean_words.values())))
        if self.types:
            sections.append(type_section(*TITLES.get(TASKS[self.task].kind, ("By class", "class")), self.types))
        sections += [confusion_section(model, each) for model, each in self.classes.items()]
        return [*sections, decile_section(self.numbers)] if self.numbers else sections


def break_down(
    task: TaskName, examples: Sequence[Labelled], labels: Sequence[str], models: Mapping[str, Sequence[Predicted]]
) -> RowBreakdown:
    """Take models' predictions apart, which come in the order of the examples."""
    kind, golds = TASKS[task].kind, [gold_of(example) for example in examples]
    given = {model: [label_of(each) for each in predictions] for model, predictions in models.items()}
    is_number, has_classes = kind == "number", kind in ("class", "choice", "answerable")
    texts = [tuple(texts_of(example).values()) for example in examples]
    words = mean_words(texts, len(texts[0])) if has_classes else ()
    return RowBreakdown(
        task=task,
        examples=len(examples),
        scores={model: score_rows(task, examples, predictions) for model, predictions in models.items()},
        types={} if is_number else {model: count_types(kind, labels, golds, each) for model, each in given.items()},
        classes={model: score_classes(texts, golds, each, labels) for model, each in given.items()}
        if has_classes
        else {},
        mean_words=dict(zip(texts_of(examples[0]), words, strict=False)) if has_classes else {},
        numbers={model: score_deciles(golds, each) for model, each in given.items()} if is_number else {},
    )


def _score_section(task: TaskName, scores: Mapping[str, Scores]) -> Section:
    rows = tuple(
        (metric, *(number_cell(of_model.get(metric), 2) for of_model in scores.values()))
        for metric in TASKS[task].scores
    )
    return Section("Scores", ("metric", *scores), rows)


def _plain(scores: ClassScores) -> dict[str, Any]:
    return scores._asdict() | {"positive": scores.positive._asdict() if scores.positive else None}
