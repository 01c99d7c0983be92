"""A file of a task -> examples that predictions are judged by; needs no torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertvision.data.example import DataConfig, TaskName
from bertvision.errors import DataError
from bertvision.kinds.kind import Golds
from bertvision.predictions.files import read_values
from bertvision.read_task import read_labelled
from bertvision.settings import Config
from bertvision.tasks import TASKS


class GoldConfig(Config):
    """What may be set when predictions are judged: how the gold file is laid out."""

    data: DataConfig = DataConfig()


class AskedFile(NamedTuple):
    """A file's examples, and whether every one of them says what is right."""

    golds: Golds
    has_golds: bool

    @property
    def questions(self) -> Sequence[Any]:
        """The examples."""
        return self.golds.examples

    def can_be_scored(self, predictions: Sequence[Any]) -> bool:
        """Whether predictions for its examples can be scored."""
        return self.has_golds and self.golds.info.kind.can_score(self.golds.examples, predictions)


def read_golds(
    name: TaskName, gold: str, data: DataConfig, predictions: Sequence[Path] = (), labels: tuple[str, ...] = ()
) -> Golds:
    """Read the gold examples; own data may be predicted to have labels of train that no gold row has."""
    found = read_labelled(name, gold, data, labels, need="texts", can_drop=False)
    if more := [] if labels else _further_labels(name, data, found.labels, predictions):
        found = read_labelled(name, gold, data, (*found.labels, *more), need="texts", can_drop=False)
    return Golds(name, TASKS[name], found.split.examples, found.labels)


def read_asked(
    name: TaskName, source: str, data: DataConfig, predictions: Sequence[Path] = (), labels: tuple[str, ...] = ()
) -> AskedFile:
    """Read a file that may or may not say what is right."""
    try:
        return AskedFile(read_golds(name, source, data, predictions, labels), True)
    except DataError:  # either some examples have no labels, or the file is bad, which the second reading will say
        found = read_labelled(name, source, data, labels, need="optional", can_drop=False)
        more = [] if labels else _further_labels(name, data, found.labels, predictions)
        return AskedFile(Golds(name, TASKS[name], found.split.examples, (*found.labels, *more)), False)


def read_questions(data: str) -> AskedFile:
    """Read a SQuAD file's questions with its answers, where it has them."""
    return read_asked("squad2", data, DataConfig())


def _further_labels(
    name: TaskName, data: DataConfig, labels: tuple[str, ...], predictions: Sequence[Path]
) -> list[str]:
    kind = TASKS[name].kind
    if data.labels or TASKS[name].labels or not kind.names_labels:
        return []
    values = [value for path in predictions for value in read_values(path).values()]
    return sorted(kind.further_labels(values) - set(labels))
