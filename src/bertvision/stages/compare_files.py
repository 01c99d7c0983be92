"""Two prediction files or folders and a gold file -> how the models differ; needs no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bertvision.analysis.comparison import Comparison, ResampledUnit, compare_answers
from bertvision.analysis.disagreements import Disagreement, find_disagreements, to_texts
from bertvision.analysis.scored import MetricName, score_answers
from bertvision.analysis.sections import Page
from bertvision.errors import SettingsError
from bertvision.predictions.files import read_answers
from bertvision.tasks.squad import read_squad

Choice = TypeVar("Choice")
METRICS: dict[str, tuple[MetricName, ...]] = {"exact": ("exact",), "f1": ("f1",), "both": ("exact", "f1")}
UNITS: dict[str, ResampledUnit] = {"question": "question", "article": "article"}


class CompareConfig(NamedTuple):
    """What is compared and how."""

    metric: str = "both"
    clusters: str = "question"
    resamples: int = 10_000
    seed: int = 1
    disagreements: int = 0  # to list


class Compared(NamedTuple):
    """A comparison, and the first questions that exactly one of the two models gets right."""

    names: tuple[str, str]
    comparison: Comparison
    disagreements: list[Disagreement]

    def as_dict(self) -> dict[str, Any]:
        """Give everything as JSON values."""
        listed = [each._asdict() for each in self.disagreements]
        return {"a": self.names[0], "b": self.names[1], **self.comparison.as_dict(), "disagreements": listed}

    def as_page(self) -> Page:
        """Give everything as it is printed."""
        head = (f"{self.comparison.questions:,} questions", f"A: {self.names[0]}", f"B: {self.names[1]}")
        return Page(head, self.comparison.sections(), to_texts(self.disagreements))


def compare_files(one: Path, other: Path, gold: str, config: CompareConfig) -> Compared:
    """Compare the answers of two models to the same questions."""
    metrics, unit = _choice("metric", config.metric, METRICS), _choice("clusters", config.clusters, UNITS)
    questions = read_squad(gold, answers="texts", hub_split="validation").examples
    a, b = (score_answers(str(path), questions, read_answers(path)) for path in (one, other))
    comparison = compare_answers(
        questions, a, b, metrics=metrics, resample=unit, resamples=config.resamples, seed=config.seed
    )
    return Compared((str(one), str(other)), comparison, find_disagreements(questions, a, b, config.disagreements))


def _choice(option: str, name: str, choices: Mapping[str, Choice]) -> Choice:
    if name not in choices:
        raise SettingsError(f"--{option} {name}: expected one of {', '.join(choices)}")
    return choices[name]
