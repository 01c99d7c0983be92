"""Texts in; classes, labels, numbers or the best ending out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

from bertvision.data.example import ChoiceRow, Question, TextRow
from bertvision.errors import DataError
from bertvision.predictions.prediction import RowPrediction
from bertvision.serving.answers import Classification
from bertvision.serving.model import Saveable, ServedModel, check_text, list_texts, pair_up
from bertvision.tasks import TASKS

Row = TextRow | ChoiceRow | Question


@dataclass(frozen=True, repr=False)
class Classifier(Saveable):
    """A model that says something of a whole text or of a pair of texts."""

    served: ServedModel

    @property
    def takes(self) -> tuple[int, ...]:
        """How many texts it reads: as its table has them; a question with a context, or a text with endings, are two.

        A checkpoint of transformers has no table, and takes one text or two.
        """
        if self.served.config.text_counts is not None:
            return self.served.config.text_counts
        layouts = TASKS[self.served.config.task].layouts
        columns = self.served.config.data.columns or (layouts[0] if layouts else None)
        return (2,) if columns is None or isinstance(columns.text, tuple) else (1,)

    @overload
    def __call__(self, text: str, other: str | Sequence[str] | None = None) -> Classification: ...

    @overload
    def __call__(self, text: list[str] | tuple[str, ...], other: Any = None) -> list[Classification]: ...  # noqa: ANN401 (of each)

    def __call__(self, text: Any, other: Any = None) -> Any:  # noqa: ANN401 (checked; one Classification or a list)
        """Classify one text, or a list of them; `other` is the second text of each pair, or the endings of a choice."""
        rows, is_one = self.rows(text, other)
        found = self.classify(rows)
        return found[0] if is_one else found

    def rows(self, text: Any, other: Any = None) -> tuple[list[Row], bool]:  # noqa: ANN401 (checked here)
        """Check texts and give them as the model's task has them; tell whether it is a single one."""
        task = self.served.config.task
        if (count := 1 if other is None else 2) not in self.takes:
            wanted = "one text" if count == 2 else "two texts (a text and its endings for choices)"
            raise DataError(f"a model of {task} reads {wanted}, got {count}")
        given, is_one = self._pairs(text, other)
        return [self.served.kind.example(str(place), *each) for place, each in enumerate(given)], is_one

    def _pairs(self, text: Any, other: Any) -> tuple[Sequence[tuple[Any, ...]], bool]:  # noqa: ANN401 (checked here)
        """Check one text or two, or a text and its endings."""
        kind = self.served.kind
        if kind.has_endings:
            return _choices(text, other, len(self.served.config.labels))
        if other is None:
            texts, is_one = list_texts("text", text)
            return [(each,) for each in texts], is_one
        return pair_up(text, other, (kind.first, kind.second))

    def classify(self, rows: Sequence[Row]) -> list[Classification]:
        """Classify rows that `rows` gave; each is as if given alone."""
        if not rows:
            return []
        answering = self.served.answering(rows)
        predictions = answering.answer(self.served.logits(answering.windows))
        return [self._classification(*each) for each in zip(rows, predictions, strict=True)]

    def _classification(self, row: Row, found: RowPrediction) -> Classification:
        names = row.endings if isinstance(row, ChoiceRow) else self.served.config.labels
        probabilities = dict(zip(names, found.probabilities, strict=bool(found.probabilities)))
        match found.label:
            case tuple():
                taken = tuple(name for name, is_taken in zip(names, found.label, strict=True) if is_taken)
                return Classification(taken, None, probabilities, found.is_text_cut)
            case int() if found.probabilities:
                probability = found.probabilities[found.label]
                return Classification(names[found.label], probability, probabilities, found.is_text_cut)
            case number:
                return Classification(float(number), None, {}, found.is_text_cut)


def _choices(text: Any, endings: Any, count: int) -> tuple[list[tuple[Any, ...]], bool]:  # noqa: ANN401 (checked here)
    """Return a beginning with its endings, or a list of beginnings with a list of endings for each."""
    beginnings, is_one = list_texts("text", text)
    lists = [endings] if is_one else endings
    if not isinstance(lists, list | tuple) or len(lists) != len(beginnings):
        raise DataError(f"{len(beginnings)} texts need as many lists of endings; give [[ending, ...], ...]")
    checked = [_check_endings(place, each, count) for place, each in enumerate(lists)]
    return list(zip(beginnings, checked, strict=True)), is_one


def _check_endings(place: int, endings: Any, count: int) -> tuple[str, ...]:  # noqa: ANN401 (checked here)
    if not isinstance(endings, list | tuple) or len(endings) != count:
        got = len(endings) if isinstance(endings, list | tuple) else type(endings).__name__
        raise DataError(f"text {place}: this model chooses among {count} endings, got {got}; give a list of {count}")
    texts = tuple(check_text(f"text {place}, ending {number}", each) for number, each in enumerate(endings))
    if len(set(texts)) < count:
        raise DataError(f"text {place}: two of its endings are equal; give different ones")
    return texts
