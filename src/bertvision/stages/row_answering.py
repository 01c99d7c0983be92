"""Rows, choices, answerability and tags: logits -> labels, their files and scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertvision.features.windows import Window
from bertvision.metrics.rows import score_rows
from bertvision.metrics.squad import Scores
from bertvision.predictions.ensemble import How
from bertvision.predictions.labels import (
    RowPrediction,
    predict_answerable,
    predict_choices,
    predict_classes,
    predict_label_sets,
    predict_numbers,
)
from bertvision.predictions.logits import Logits
from bertvision.predictions.row_ensemble import combine_rows
from bertvision.predictions.row_files import write_rows, write_tags
from bertvision.predictions.tags import TagPrediction, predict_tags
from bertvision.tasks.catalog import TASKS
from bertvision.tasks.task import Kind, Sentence, Split, TaskName


@dataclass(frozen=True)
class RowAnswering:
    """Examples whose answer is about a whole row: classes, labels, numbers, choices, and whether there is an answer."""

    split: Split[Any]
    windows: Sequence[Window]
    task: TaskName
    labels: tuple[str, ...]
    part: str = ""  # which split it is, where it is not dev: GLUE's files are named after it

    @property
    def kind(self) -> Kind:
        """Tell what is asked of a row."""
        return TASKS[self.task].kind

    def combine(self, members: Sequence[Logits], how: How, weights: Sequence[float] | None) -> Logits:
        """Make one model's logits of several, row by row."""
        return combine_rows(self.kind, members, how, weights, group=len(self.labels))

    def answer(self, logits: Logits) -> list[RowPrediction]:
        """Give a label of its kind to every example."""
        ids = [example.id for example in self.split.examples]
        match self.kind:
            case "labels":
                return predict_label_sets(ids, logits)
            case "number":
                return predict_numbers(ids, logits)
            case "choice":
                return predict_choices(ids, logits, len(self.labels))
            case "answerable":
                return predict_answerable(ids, np.array([window.example for window in self.windows]), logits)
            case _:
                return predict_classes(ids, logits)

    def write(self, folder: Path, answers: list[RowPrediction], logits: Logits) -> None:
        """Write labels and probabilities by id, and what GLUE's site takes; logits say no more than these."""
        write_rows(folder, self.task, self.labels, answers, self.part)

    def score(self, answers: list[RowPrediction], logits: Logits, how: How | None = None) -> Scores:
        """Give the task's scores."""
        return score_rows(self.task, self.split.examples, answers)


@dataclass(frozen=True)
class TagAnswering:
    """Sentences, each of whose words gets a tag."""

    split: Split[Sentence]
    windows: Sequence[Window]
    tags: tuple[str, ...]

    def combine(self, members: Sequence[Logits], how: How, weights: Sequence[float] | None) -> Logits:
        """Make one model's logits of several, token by token."""
        return combine_rows("tags", members, how, weights)

    def answer(self, logits: Logits) -> list[TagPrediction]:
        """Give a tag to every word."""
        sentence_of = np.repeat([window.example for window in self.windows], [len(window) for window in self.windows])
        word_of = np.concatenate([window.words for window in self.windows if window.words is not None])
        return predict_tags(self.split.examples, self.tags, sentence_of, word_of, logits)

    def write(self, folder: Path, answers: list[TagPrediction], logits: Logits) -> None:
        """Write tags by sentence, and as columns."""
        write_tags(folder, self.split.examples, answers)

    def score(self, answers: list[TagPrediction], logits: Logits, how: How | None = None) -> Scores:
        """Give the scores of whole entities, and of tokens."""
        return score_rows("ner", self.split.examples, answers)
