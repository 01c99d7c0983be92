"""Two prediction files or folders and a gold file -> how the models differ; needs no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bertvision.analysis.comparison import Comparison, ResampledUnit, compare_answers, units_of
from bertvision.analysis.disagreements import Disagreement, find_disagreements, to_texts
from bertvision.analysis.row_comparison import RowComparison, compare_rows
from bertvision.analysis.row_disagreements import RowDisagreement, find_row_disagreements, to_row_texts
from bertvision.analysis.rows import noun_of
from bertvision.analysis.scored import MetricName, score_answers
from bertvision.analysis.sections import Page
from bertvision.errors import SettingsError
from bertvision.evaluate.golds import GoldConfig, read_golds, read_predicted
from bertvision.predictions.files import read_answers
from bertvision.settings import Settings, validate
from bertvision.tasks.catalog import TASKS, task_name
from bertvision.tasks.squad import read_squad
from bertvision.tasks.task import TaskName

Choice = TypeVar("Choice")
METRICS: dict[str, tuple[MetricName, ...]] = {"exact": ("exact",), "f1": ("f1",), "both": ("exact", "f1")}
UNITS: dict[str, ResampledUnit] = {"question": "question", "article": "article"}


class CompareConfig(NamedTuple):
    """What is compared and how."""

    metric: str | None = None  # None: all of the task's
    clusters: str = "question"
    resamples: int = 10_000
    seed: int = 1
    disagreements: int = 0  # to list
    task: str = "squad2"
    settings: Settings = {}  # how the gold file is laid out


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


class ComparedRows(NamedTuple):
    """The same for any task but spans, with the first examples that are answered differently."""

    names: tuple[str, str]
    comparison: RowComparison
    disagreements: list[RowDisagreement]

    def as_dict(self) -> dict[str, Any]:
        """Give everything as JSON values."""
        listed = [each._asdict() for each in self.disagreements]
        return {"a": self.names[0], "b": self.names[1], **self.comparison.as_dict(), "disagreements": listed}

    def as_page(self) -> Page:
        """Give everything as it is printed."""
        nouns = f"{noun_of(TASKS[self.comparison.task].kind)}s"
        head = (f"{self.comparison.examples:,} {nouns}", f"A: {self.names[0]}", f"B: {self.names[1]}")
        return Page(head, self.comparison.sections(), to_row_texts(self.disagreements))


def compare_files(one: Path, other: Path, gold: str, config: CompareConfig) -> Compared | ComparedRows:
    """Compare the answers of two models to the same examples."""
    name, data = task_name(config.task), validate(GoldConfig, config.settings, "--set").data
    unit = _choice("clusters", config.clusters, UNITS)
    if TASKS[name].kind == "span":
        return _compare_spans(one, other, gold, unit, config)
    if unit == "article" and TASKS[name].kind != "answerable":
        raise SettingsError(f"--clusters article: task {name} has no articles; leave it out")
    metrics = TASKS[name].scores if config.metric is None else (_known_score(name, config.metric),)
    golds = read_golds(name, gold, data, (one, other))
    a, b = (read_predicted(golds, path) for path in (one, other))
    comparison = compare_rows(
        *(name, golds.examples, golds.labels, a, b),
        metrics=metrics,
        units=units_of(golds.examples, unit) if unit == "article" else None,
        resamples=config.resamples,
        seed=config.seed,
    )
    differing = find_row_disagreements(name, golds.examples, golds.labels, a, b, config.disagreements)
    return ComparedRows((str(one), str(other)), comparison, differing)


def _compare_spans(one: Path, other: Path, gold: str, unit: ResampledUnit, config: CompareConfig) -> Compared:
    metrics = _choice("metric", config.metric or "both", METRICS)
    questions = read_squad(gold, answers="texts", hub_split="validation").examples
    a, b = (score_answers(str(path), questions, read_answers(path)) for path in (one, other))
    comparison = compare_answers(
        questions, a, b, metrics=metrics, resample=unit, resamples=config.resamples, seed=config.seed
    )
    return Compared((str(one), str(other)), comparison, find_disagreements(questions, a, b, config.disagreements))


def _known_score(name: TaskName, metric: str) -> str:
    return _choice("metric", metric, {each: each for each in TASKS[name].scores})


def _choice(option: str, name: str, choices: Mapping[str, Choice]) -> Choice:
    if name not in choices:
        raise SettingsError(f"--{option} {name}: expected one of {', '.join(choices)}")
    return choices[name]
