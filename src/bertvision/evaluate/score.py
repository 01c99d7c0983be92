"""A gold file and anybody's predictions -> a task's official scores; needs no torch."""

from pathlib import Path
from typing import NamedTuple

from bertvision.errors import DataError
from bertvision.evaluate.golds import GoldConfig, read_golds, read_predicted
from bertvision.metrics.rows import score_rows
from bertvision.metrics.squad import Scores, score_squad1, score_squad2
from bertvision.predictions.files import read_mapping
from bertvision.settings import Settings, validate
from bertvision.tasks.catalog import TASKS, task_name
from bertvision.tasks.squad import read_squad
from bertvision.tasks.task import TaskName


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
    name, data = task_name(task), validate(GoldConfig, settings or {}, "--set").data
    if null_odds is not None and name != "squad2":
        has = "unanswerable questions" if name == "squad1" else "null odds"
        raise DataError(f"{name} has no {has}; leave --null-odds out or score squad2")
    if TASKS[name].kind == "span":
        return _score_spans(name, gold, predictions, null_odds, na_prob_thresh)
    golds = read_golds(name, gold, data, [predictions])
    return Scored(score_rows(name, golds.examples, read_predicted(golds, predictions)))


def _score_spans(name: TaskName, gold: str, predictions: Path, null_odds: Path | None, threshold: float) -> Scored:
    questions = read_squad(gold, answers="texts", hub_split="validation").examples
    answers = read_mapping(predictions, str)
    if name == "squad2":
        odds = read_mapping(null_odds, float) if null_odds is not None else None
        return Scored(score_squad2(questions, answers, odds, threshold))
    missing = [question.id for question in questions if question.id not in answers]
    note = f"{len(missing)} questions without a prediction, such as {missing[0]!r}, score 0" if missing else ""
    return Scored(score_squad1(questions, answers), note)
