"""A gold file and predictions of any task but spans -> examples, and predictions in their order; needs no torch."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertvision.metrics.rows import Predicted, in_order
from bertvision.predictions.row_files import read_rows, read_tags, read_values
from bertvision.settings import Config
from bertvision.tasks.catalog import TASKS
from bertvision.tasks.read import Labelled, read_labelled
from bertvision.tasks.squad import read_squad
from bertvision.tasks.task import DataConfig, TaskName


class GoldConfig(Config):
    """What may be set when predictions are judged: how the gold file is laid out."""

    data: DataConfig = DataConfig()


class Golds(NamedTuple):
    """What predictions are judged by."""

    task: TaskName
    examples: Sequence[Any]
    labels: tuple[str, ...]  # names of the classes, labels or tags, by number


def read_golds(name: TaskName, gold: str, data: DataConfig, predictions: Sequence[Path]) -> Golds:
    """Read the gold examples; own data may be predicted to have labels of train that no gold row has."""
    if TASKS[name].kind == "answerable":
        questions = read_squad(gold, answers="texts", hub_split="validation").examples
        return Golds(name, questions, TASKS[name].labels)
    labelled = read_labelled(name, gold, data, can_drop=False)
    more = _further_labels(name, data, labelled, predictions)
    if more:
        labelled = read_labelled(name, gold, data, (*labelled.labels, *more), can_drop=False)
    return Golds(name, labelled.split.examples, labelled.labels)


def read_predicted(golds: Golds, path: Path) -> list[Predicted]:
    """Read predictions, one for each gold example, in their order."""
    if TASKS[golds.task].kind == "tags":
        return in_order(golds.examples, read_tags(path, golds.examples), str(path))
    return in_order(golds.examples, read_rows(path, golds.task, golds.labels), str(path))


def _further_labels(name: TaskName, data: DataConfig, labelled: Labelled, predictions: Sequence[Path]) -> list[str]:
    if data.labels or TASKS[name].labels or TASKS[name].kind not in ("class", "labels"):
        return []
    values = (value for path in predictions for value in read_values(path).values())
    return sorted({str(each) for value in values for each in _listed(value)} - set(labelled.labels))


def _listed(value: Any) -> Iterable[Any]:  # noqa: ANN401 (checked where it is read)
    return value if isinstance(value, list) else (value,)
