"""Anybody's predictions and a gold file -> official scores; where the model is right, and why not; needs no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bertvision.analysis.disagreements import Disagreement, Outcomes, outcome_section, to_texts
from bertvision.evaluate.golds import find_asked
from bertvision.kinds.facts import Breakdown
from bertvision.kinds.kind import Golds
from bertvision.metrics.squad import Scores
from bertvision.settings import Settings
from bertvision.tables import Page
from bertvision.tasks import TASKS


@dataclass(frozen=True)
class Analysis:
    """One model, or two, taken apart."""

    names: dict[str, str]  # the folders behind A and B
    golds: Golds
    breakdown: Breakdown
    outcomes: dict[str, Outcomes] | None  # None without a second model, and where predictions are not right or wrong
    disagreements: list[Disagreement]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        against = {
            "outcomes": {name: each._asdict() for name, each in self.outcomes.items()} if self.outcomes else None,
            **self.breakdown.against,
            "disagreements": [each.plain for each in self.disagreements],
        }
        return {"models": self.names, **self.breakdown.plain, "against": against if "B" in self.names else None}

    def as_page(self) -> Page:
        """Return everything as it is printed."""
        kind, names = self.golds.info.kind, (f"{model}: {name}" for model, name in self.names.items())
        outcomes = [outcome_section(self.outcomes, "", kind.right, kind.nouns)] if self.outcomes else []
        return Page(
            (f"{len(self.golds.examples):,} {kind.nouns}", *names),
            [*self.breakdown.sections, *outcomes, *self.breakdown.against_sections],
            to_texts(self.disagreements),
        )


def analyze_folder(
    folder: str | Path,
    gold: str | None = None,
    against: str | Path | None = None,
    disagreements: int = 10,
    task: str | None = None,
    settings: Settings | None = None,
) -> Analysis:
    """Take a model's predictions apart, and set them against another's where one is given.

    Those of a run, or a run folder (its best model's), say what they are of; `gold` is by default the run's dev file.
    """
    asked = find_asked([folder] if against is None else [folder, against], gold, task, settings or {})
    golds, kind, paths = asked.read_golds(gold), TASKS[asked.task].kind, dict(zip("AB", asked.paths, strict=False))
    models = {model: kind.read_predictions(path, golds, whole=True) for model, path in paths.items()}
    names, found = {model: str(path) for model, path in paths.items()}, kind.break_down(golds, models)
    if "B" not in models:
        return Analysis(names, golds, found, None, [])
    both = (golds, models["A"], models["B"])
    return Analysis(names, golds, found, kind.outcomes(*both), kind.disagreements(*both, disagreements))


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
