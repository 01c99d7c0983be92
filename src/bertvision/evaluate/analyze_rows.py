"""A prediction folder and a gold file of any task but spans -> where the model is right; needs no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertvision.analysis.outcomes import Outcomes, outcome_section
from bertvision.analysis.row_breakdown import RowBreakdown, break_down
from bertvision.analysis.row_comparison import count_row_outcomes
from bertvision.analysis.row_disagreements import RowDisagreement, find_row_disagreements, to_row_texts
from bertvision.analysis.rows import noun_of
from bertvision.analysis.sections import Page
from bertvision.evaluate.golds import read_golds, read_predicted
from bertvision.tasks.catalog import TASKS
from bertvision.tasks.task import DataConfig, TaskName


@dataclass(frozen=True)
class RowAnalysis:
    """One model, or two, taken apart."""

    names: dict[str, str]  # the folders behind A and B
    breakdown: RowBreakdown
    outcomes: dict[str, Outcomes] | None  # None without a second model, and where answers are not right or wrong
    disagreements: list[RowDisagreement]

    def as_dict(self) -> dict[str, Any]:
        """Give everything as JSON values."""
        outcomes = {name: each._asdict() for name, each in self.outcomes.items()} if self.outcomes else None
        against = {"outcomes": outcomes, "disagreements": [each._asdict() for each in self.disagreements]}
        return {"models": self.names, **self.breakdown.as_dict(), "against": against if "B" in self.names else None}

    def as_page(self) -> Page:
        """Give everything as it is printed."""
        nouns = f"{noun_of(TASKS[self.breakdown.task].kind)}s"
        head = (f"{self.breakdown.examples:,} {nouns}", *(f"{model}: {name}" for model, name in self.names.items()))
        compared = [outcome_section(self.outcomes, "", "Who is right", nouns)] if self.outcomes else []
        return Page(head, [*self.breakdown.sections(), *compared], to_row_texts(self.disagreements))


def analyze_rows(
    task: TaskName, folder: Path, gold: str, data: DataConfig, against: Path | None, disagreements: int
) -> RowAnalysis:
    """Take a model's predictions apart, and set them against another's where one is given."""
    paths = {"A": folder} | ({"B": against} if against is not None else {})
    golds = read_golds(task, gold, data, list(paths.values()))
    models = {name: read_predicted(golds, path) for name, path in paths.items()}
    found = break_down(task, golds.examples, golds.labels, models)
    names = {name: str(path) for name, path in paths.items()}
    if "B" not in models:
        return RowAnalysis(names, found, None, [])
    both = (task, golds.examples, golds.labels, models["A"], models["B"])
    return RowAnalysis(names, found, count_row_outcomes(*both), find_row_disagreements(*both, disagreements))
