"""A gold file and anybody's predictions -> a task's official scores; needs no torch."""

from pathlib import Path
from typing import NamedTuple

from bertvision.evaluate.golds import GoldConfig, read_golds
from bertvision.metrics.squad import Scores
from bertvision.settings import Settings, validate
from bertvision.tasks import TASKS, task_name


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
    kind = TASKS[name].kind
    kind.check_null_odds(name, null_odds)
    golds = read_golds(name, gold, data, [predictions])
    return Scored(*kind.score_file(golds, predictions, null_odds, na_prob_thresh))
