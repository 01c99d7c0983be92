"""Predictions of rows, choices and sentences, and their examples -> a task's scores, and those of guessing."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bertvision.errors import DataError
from bertvision.metrics import scores as metrics
from bertvision.metrics.squad import Scores
from bertvision.metrics.tags import score_tags
from bertvision.predictions.labels import RowPrediction
from bertvision.predictions.tags import TagPrediction
from bertvision.tasks.catalog import TASKS
from bertvision.tasks.task import ChoiceRow, Kind, Question, Sentence, TaskName, TextRow

Labelled = Question | TextRow | ChoiceRow | Sentence
Predicted = RowPrediction | TagPrediction
Metric = Callable[[metrics.Numbers, metrics.Numbers], float | None]
METRICS: dict[str, Metric] = {
    "accuracy": metrics.accuracy,
    "f1": metrics.f1,
    "matthews": metrics.matthews,
    "pearson": metrics.pearson,
    "spearman": metrics.spearman,
    "rmse": metrics.rmse,
    "mae": metrics.mae,
    "macro_f1": metrics.macro_f1,
    "micro_f1": metrics.micro_f1,
    "exact": metrics.exact_sets,
}
PAPER = "paper_v1_"


def score_rows(name: TaskName, examples: Sequence[Labelled], predictions: Sequence[Predicted]) -> Scores:
    """Give a task's scores; one that has no value is absent.

    Every example needs a label and exactly one prediction; their order does not matter.
    """
    golds = [gold_of(example) for example in examples]
    found = in_order(examples, predictions)
    if TASKS[name].kind == "tags":
        return score_tags(golds, [each.tags for each in found if isinstance(each, TagPrediction)])
    rows = [each for each in found if isinstance(each, RowPrediction)]
    gold = np.array(golds)
    scores = {metric: _score(metric, gold, rows) for metric in TASKS[name].scores}
    return {metric: value for metric, value in scores.items() if value is not None}


def majority_scores(name: TaskName, train: Sequence[Labelled], dev: Sequence[Labelled]) -> Scores:
    """Score what needs no model: the commonest class, labels or ending of train, its mean, or no entity at all."""
    kind = TASKS[name].kind
    if kind == "tags":
        return score_rows(name, dev, [TagPrediction(each.id, ("O",) * len(gold_of(each))) for each in dev])
    guess = _guess(kind, [gold_of(example) for example in train])
    paper = guess if kind == "answerable" else None
    return score_rows(name, dev, [RowPrediction(each.id, guess, paper_label=paper) for each in dev])


def gold_of(example: Labelled) -> Any:  # noqa: ANN401 (what the example's kind has)
    """Give what an example's prediction is compared with; a question's is whether it has no answer."""
    if isinstance(example, Question):
        return int(example.is_impossible)
    gold = example.tags if isinstance(example, Sentence) else example.label
    if gold is None:
        raise DataError(f"example {example.id!r} has no label to compare with; score a labelled file")
    return gold


def labels_for(metric: str, rows: Sequence[RowPrediction]) -> metrics.Numbers | None:
    """Give what a metric compares; None where it is by the 2020 system's rule and there are no answers by it."""
    if not metric.startswith(PAPER):
        return np.array([row.label for row in rows])
    paper = [row.paper_label for row in rows]
    return None if None in paper else np.array(paper)  # another program's file has one answer to each question


def in_order(examples: Sequence[Labelled], predictions: Sequence[Predicted], where: str = "") -> list[Predicted]:
    """Give each example's prediction; every example needs exactly one. `where` begins the error message."""
    by_id = {each.id: each for each in predictions}
    prefix = f"{where}: " if where else ""
    missing = [example.id for example in examples if example.id not in by_id]
    if missing:
        raise DataError(
            f"{prefix}no prediction for {len(missing)} of {len(examples)} examples, such as {missing[0]!r}; "
            "predict again"
        )
    if len(by_id) > len(examples) or len(by_id) < len(predictions):
        known = {example.id for example in examples}
        odd = next((each.id for each in predictions if each.id not in known), "one that is given twice")
        raise DataError(
            f"{prefix}a prediction for {odd!r}, which the examples do not have; give the file that was predicted"
        )
    return [by_id[example.id] for example in examples]


def _score(metric: str, gold: metrics.Numbers, rows: Sequence[RowPrediction]) -> float | None:
    labels = labels_for(metric, rows)
    return None if labels is None else METRICS[metric.removeprefix(PAPER)](gold, labels)


def _guess(kind: Kind, golds: Sequence[Any]) -> Any:  # noqa: ANN401 (a label of the kind)
    if kind == "number":
        return float(np.mean(golds))
    if kind == "labels":
        return tuple((np.mean(golds, axis=0) > 0.5).astype(int).tolist())
    counts = Counter(golds)
    return min(counts, key=lambda label: (-counts[label], label))
