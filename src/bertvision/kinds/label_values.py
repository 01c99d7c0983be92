"""What prediction files hold of labels, checked, and put in the order of the examples."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertvision.data.tables import finite_number
from bertvision.errors import DataError
from bertvision.metrics.scores import Numbers
from bertvision.predictions.prediction import RowPrediction

PROBABILITIES = "probabilities.json"
PAPER_FILE = "paper_v1_predictions.json"
PAPER = "paper_v1_"  # before a score by the 2020 system's rule


def known(identity: str, gold: Any) -> Any:  # noqa: ANN401 (of its kind)
    """Return a gold; refuse an example without one."""
    if gold is None:
        raise DataError(f"example {identity!r} has no label to compare with; score a labelled file")
    return gold


def in_order(examples: Sequence[Any], predictions: Sequence[Any], where: str = "") -> list[Any]:
    """Return each example's prediction; every example needs exactly one. `where` begins the error message."""
    by_id = {each.id: each for each in predictions}
    prefix = f"{where}: " if where else ""
    missing = [example.id for example in examples if example.id not in by_id]
    if missing:
        raise DataError(
            f"{prefix}no prediction for {len(missing)} of {len(examples)} examples, such as {missing[0]!r}; "
            "predict again"
        )
    if len(by_id) > len(examples) or len(by_id) < len(predictions):
        known_ids = {example.id for example in examples}
        odd = next((each.id for each in predictions if each.id not in known_ids), "one that is given twice")
        raise DataError(
            f"{prefix}a prediction for {odd!r}, which the examples do not have; give the file that was predicted"
        )
    return [by_id[example.id] for example in examples]


def labels_for(metric: str, rows: Sequence[RowPrediction]) -> Numbers | None:
    """Return what a metric compares; None where it is by the 2020 system's rule and there are no answers by it."""
    if not metric.startswith(PAPER):
        return np.array([row.label for row in rows])
    paper = [row.paper_label for row in rows]
    return None if None in paper else np.array(paper)  # another program's file has one answer to each question


def class_of(where: str, value: Any, labels: Sequence[str], *, has_numbers: bool) -> int:  # noqa: ANN401 (checked)
    """Return a class by its name or, as GLUE's files write some, by its number."""
    name = str(value) if isinstance(value, (str, int)) else ""
    if name in labels:
        return labels.index(name)
    if has_numbers and name.isdecimal() and int(name) < len(labels):
        return int(name)
    raise DataError(f"{where}: {value!r:.80} is no label; expected {', '.join(map(repr, labels))}")


def number_of(where: str, value: Any) -> float:  # noqa: ANN401 (checked here)
    """Return a finite number that a file holds."""
    if (found := finite_number(value)) is None:
        raise DataError(f"{where}: expected a number, got {value!r:.80}")
    return found


def read_shares(path: Path, key: str, value: Any, labels: Sequence[str]) -> tuple[float, ...]:  # noqa: ANN401 (checked)
    """Return a probability for each label; those of labels that nobody asks for are left out."""
    if isinstance(value, dict) and value.keys() >= set(labels):  # a model may know labels that nobody asks for
        value = [value[label] for label in labels]
    if not isinstance(value, list):  # as another program may write them, without the labels' names
        expected = f"a probability for each of {', '.join(map(repr, labels))}"
        raise DataError(f"{path}: {key!r}: expected {expected}, got {value!r:.80}; predict again")
    return tuple(number_of(f"{path}: {key!r}", each) for each in value)
