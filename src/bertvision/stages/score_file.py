"""A gold file and anybody's predictions -> a task's official scores; needs no torch."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from bertvision.errors import DataError
from bertvision.metrics.rows import score_rows
from bertvision.metrics.squad import Scores, score_squad1, score_squad2
from bertvision.predictions.files import read_mapping
from bertvision.predictions.row_files import read_rows, read_tags, read_values
from bertvision.settings import Config, Settings, validate
from bertvision.tasks.catalog import TASKS, task_name
from bertvision.tasks.read import Labelled, read_labelled
from bertvision.tasks.squad import read_squad
from bertvision.tasks.task import DataConfig, TaskName


class ScoreConfig(Config):
    """What may be set when predictions are scored: how the gold file is laid out."""

    data: DataConfig = DataConfig()


class Scored(NamedTuple):
    """The scores, and what the user should know beside them."""

    scores: Scores
    note: str = ""


def score_file(
    task: str,
    gold: str,
    predictions: Path,
    null_odds: Path | None = None,
    na_prob_thresh: float = 1.0,
    settings: Settings | None = None,
) -> Scored:
    """Score predictions as the task's official script would."""
    name, data = task_name(task), validate(ScoreConfig, settings or {}, "--set").data
    if null_odds is not None and name != "squad2":
        has = "unanswerable questions" if name == "squad1" else "null odds"
        raise DataError(f"{name} has no {has}; leave --null-odds out or score squad2")
    if TASKS[name].kind == "span":
        return _score_spans(name, gold, predictions, null_odds, na_prob_thresh)
    if TASKS[name].kind == "answerable":
        questions = read_squad(gold, answers="texts", hub_split="validation").examples
        return Scored(score_rows(name, questions, read_rows(predictions, name, TASKS[name].labels)))
    if TASKS[name].kind == "tags":
        sentences = read_labelled(name, gold, data, can_drop=False).split.examples
        return Scored(score_rows(name, sentences, read_tags(predictions, sentences)))
    labelled = _read_gold(name, gold, data, predictions)
    return Scored(score_rows(name, labelled.split.examples, read_rows(predictions, name, labelled.labels)))


def _score_spans(name: TaskName, gold: str, predictions: Path, null_odds: Path | None, threshold: float) -> Scored:
    questions = read_squad(gold, answers="texts", hub_split="validation").examples
    answers = read_mapping(predictions, str)
    if name == "squad2":
        odds = read_mapping(null_odds, float) if null_odds is not None else None
        return Scored(score_squad2(questions, answers, odds, threshold))
    missing = [question.id for question in questions if question.id not in answers]
    note = f"{len(missing)} questions without a prediction, such as {missing[0]!r}, score 0" if missing else ""
    return Scored(score_squad1(questions, answers), note)


def _read_gold(name: TaskName, gold: str, data: DataConfig, predictions: Path) -> Labelled:
    """Read the gold rows; own data may be predicted to have labels of train that no gold row has."""
    labelled = read_labelled(name, gold, data, can_drop=False)
    if data.labels or TASKS[name].labels or TASKS[name].kind not in ("class", "labels"):
        return labelled
    predicted = {str(each) for value in read_values(predictions).values() for each in _listed(value)}
    more = tuple(sorted(predicted - set(labelled.labels)))
    return read_labelled(name, gold, data, (*labelled.labels, *more), can_drop=False) if more else labelled


def _listed(value: Any) -> Iterable[Any]:  # noqa: ANN401 (checked where it is read)
    return value if isinstance(value, list) else (value,)
