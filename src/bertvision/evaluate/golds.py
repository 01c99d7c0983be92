"""A file of a task -> examples that predictions are judged by; needs no torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertvision.data.example import DataConfig, TaskName
from bertvision.data.squad import Need
from bertvision.errors import DataError
from bertvision.kinds.kind import Golds
from bertvision.kinds.label_values import PROBABILITIES
from bertvision.predictions.files import read_beside, read_values
from bertvision.settings import Config
from bertvision.tasks import TASKS, read_labelled


class GoldConfig(Config):
    """What may be set when predictions are judged: how the gold file is laid out."""

    data: DataConfig = DataConfig()


class AskedFile(NamedTuple):
    """A file's examples, and whether every one of them says what is right."""

    golds: Golds
    has_golds: bool
    dropped: int = 0  # bad examples that were left out
    first_bad: str = ""  # what is wrong with the first of them

    @property
    def questions(self) -> Sequence[Any]:
        """The examples."""
        return self.golds.examples

    def can_be_scored(self, predictions: Sequence[Any]) -> bool:
        """Whether predictions for its examples can be scored."""
        return self.has_golds and self.golds.info.kind.can_score(self.golds.examples, predictions)


def read_golds(name: TaskName, gold: str, data: DataConfig, predictions: Sequence[Path] = ()) -> Golds:
    """Read the gold examples; own data may be predicted to have labels of train that no gold row has."""
    values = [value for path in predictions for value in read_values(path).values()] if _is_open(name, data) else []
    return _read(name, gold, data, (), values).golds


def read_asked(
    name: TaskName,
    source: str,
    data: DataConfig,
    predictions: Sequence[Path] = (),
    labels: tuple[str, ...] = (),
    *,
    can_drop: bool = False,
) -> AskedFile:
    """Read a file that may or may not say what is right; its labels are all that the predictions know.

    With `can_drop`, errors advise to leave bad examples out.
    """
    values = [label for path in predictions for label in _known_labels(path)] if _is_open(name, data) else []
    try:
        return _read(name, source, data, labels, values)
    except DataError:  # either some examples have no labels, or the file is bad, which the second reading will say
        return _read(name, source, data, labels, values, need="optional", can_drop=can_drop)


def read_questions(data: str) -> AskedFile:
    """Read a SQuAD file's questions with its answers, where it has them."""
    return read_asked("squad2", data, DataConfig())


def _is_open(name: TaskName, data: DataConfig) -> bool:
    """Whether labels are only those that files happen to hold, not those that settings or columns name."""
    has_columns = data.columns is not None and isinstance(data.columns.label, tuple)
    return TASKS[name].kind.names_labels and not data.labels and not TASKS[name].labels and not has_columns


def _known_labels(path: Path) -> list[Any]:
    """Return what was predicted, and of what there are probabilities."""
    shares = read_beside(path, PROBABILITIES).values()
    return [*read_values(path).values(), *(label for each in shares if isinstance(each, dict) for label in each)]


def _read(
    name: TaskName,
    source: str,
    data: DataConfig,
    labels: tuple[str, ...],
    values: Sequence[Any],
    need: Need = "texts",
    can_drop: bool = False,
) -> AskedFile:
    found = read_labelled(name, source, data, labels, need=need, can_drop=can_drop)
    if more := sorted(TASKS[name].kind.further_labels(values) - set(found.labels)) if not labels else []:
        found = read_labelled(name, source, data, (*found.labels, *more), need=need, can_drop=can_drop)
    golds = Golds(name, TASKS[name], found.split.examples, found.labels)
    return AskedFile(golds, need != "optional", found.split.dropped, found.split.first_bad)
