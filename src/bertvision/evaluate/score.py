"""A gold file and anybody's predictions -> a task's official scores; needs no torch."""

from pathlib import Path
from typing import NamedTuple

from bertvision.evaluate.asked_run import find_asked
from bertvision.metrics.squad import Scores
from bertvision.settings import Settings
from bertvision.tasks import TASKS


class Scored(NamedTuple):
    """The scores, and what the user should know beside them."""

    scores: Scores
    note: str = ""


def score_file(
    task: str | None,
    gold: str | None,
    predictions: str | Path,
    null_odds: str | Path | None = None,
    na_prob_thresh: float = 1.0,
    settings: Settings | None = None,
) -> Scored:
    """Score predictions as the task's official script would; those of a run need neither task nor gold file."""
    asked = find_asked([predictions], gold, task, settings or {})
    kind, odds = TASKS[asked.task].kind, None if null_odds is None else Path(null_odds)
    kind.check_null_odds(asked.task, odds)
    return Scored(*kind.score_file(asked.read_golds(gold), asked.paths[0], odds, na_prob_thresh))
