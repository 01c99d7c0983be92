"""A prediction folder and a gold file -> where the model is right and why not; needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertvision.analysis.breakdown import (
    Errors,
    GroupScore,
    LengthsOfRight,
    count_errors,
    error_section,
    group_section,
    length_section,
    lengths_of_right,
    score_groups,
)
from bertvision.analysis.context_pieces import count_context_pieces
from bertvision.analysis.disagreements import Disagreement, find_disagreements, to_texts
from bertvision.analysis.groups import Grouping, group_questions, group_types
from bertvision.analysis.outcomes import Outcomes, count_outcomes, outcome_section
from bertvision.analysis.scored import ScoredAnswers, score_answers
from bertvision.analysis.second import (
    SecondAnswers,
    paper_answers,
    score_seconds,
    second_of_candidates,
    second_section,
)
from bertvision.analysis.sections import Page, Section
from bertvision.errors import FolderError
from bertvision.evaluate.analyze_rows import RowAnalysis, analyze_rows
from bertvision.evaluate.golds import GoldConfig
from bertvision.predictions.files import PredictionFolder, read_prediction_folder
from bertvision.predictions.logits import Logits, TokenGrid, load_logits
from bertvision.settings import Settings, validate
from bertvision.tasks.catalog import TASKS, task_name
from bertvision.tasks.squad import read_squad
from bertvision.tasks.task import Question


@dataclass(frozen=True)
class Against:
    """What sets a second model apart."""

    outcomes: dict[str, Outcomes]
    context_lengths: dict[str, LengthsOfRight]
    disagreements: list[Disagreement]

    def as_dict(self) -> dict[str, Any]:
        """Give everything as JSON values."""
        return {
            "outcomes": {name: each._asdict() for name, each in self.outcomes.items()},
            "context_lengths": {name: each._asdict() for name, each in self.context_lengths.items()},
            "disagreements": [each._asdict() for each in self.disagreements],
        }

    def sections(self) -> list[Section]:
        """Give the counts as tables."""
        return [outcome_section(self.outcomes, ""), length_section(self.context_lengths)]


@dataclass(frozen=True)
class Analysis:
    """One model, or two, taken apart."""

    names: dict[str, str]  # the folders behind A and B
    questions: int
    groupings: list[Grouping]
    groups: dict[str, dict[str, dict[str, GroupScore]]]  # by grouping, group and model
    errors: dict[str, Errors]
    seconds: dict[str, SecondAnswers | None]  # of A; None where the folder lacks the file
    against: Against | None

    def as_dict(self) -> dict[str, Any]:
        """Give everything as JSON values."""
        counts = {each.title: {name: len(group) for name, group in each.groups.items()} for each in self.groupings}
        return {
            "models": self.names,
            "questions": self.questions,
            "counts": counts,
            "groups": {title: _plain(groups) for title, groups in self.groups.items()},
            "errors": {name: each._asdict() for name, each in self.errors.items()},
            "second_answers": {name: each._asdict() if each else None for name, each in self.seconds.items()},
            "against": self.against.as_dict() if self.against else None,
        }

    def as_page(self) -> Page:
        """Give everything as it is printed."""
        head = (f"{self.questions:,} questions", *(f"{model}: {name}" for model, name in self.names.items()))
        return Page(head, self._sections(), to_texts(self.against.disagreements) if self.against else [])

    def _sections(self) -> list[Section]:
        grouped = [group_section(each, self.groups[each.title]) for each in self.groupings]
        compared = self.against.sections() if self.against else []
        return [*grouped, error_section(self.errors), second_section(self.seconds), *compared]


def analyze_folder(
    folder: Path,
    gold: str,
    against: Path | None = None,
    disagreements: int = 10,
    task: str = "squad2",
    settings: Settings | None = None,
) -> Analysis | RowAnalysis:
    """Take a model's answers apart, and set them against another's where one is given."""
    name, data = task_name(task), validate(GoldConfig, settings or {}, "--set").data
    if TASKS[name].kind != "span":
        return analyze_rows(name, folder, gold, data, against, disagreements)
    return _analyze_spans(folder, gold, against, disagreements)


def _analyze_spans(folder: Path, gold: str, against: Path | None, disagreements: int) -> Analysis:
    questions = read_squad(gold, answers="texts", hub_split="validation").examples
    first = read_prediction_folder(folder)
    models = {"A": score_answers(str(folder), questions, first.answers)}
    if against is not None:
        models["B"] = score_answers(str(against), questions, read_prediction_folder(against).answers)
    placed = _load_placed_logits(first)
    pieces = None if placed is None else count_context_pieces(placed[0])
    groupings = group_questions(questions, pieces)
    return Analysis(
        names={"A": str(folder)} | ({"B": str(against)} if against is not None else {}),
        questions=len(questions),
        groupings=groupings,
        groups={each.title: score_groups(each, models) for each in groupings},
        errors={name: count_errors(questions, answers) for name, answers in models.items()},
        seconds={"n-best": _seconds(questions, first), "paper": _papers_seconds(questions, placed)},
        against=_against(questions, models, pieces, disagreements) if against is not None else None,
    )


def _against(
    questions: Sequence[Question],
    models: Mapping[str, ScoredAnswers],
    pieces: Mapping[str, int] | None,
    disagreements: int,
) -> Against:
    a, b = models["A"], models["B"]
    return Against(
        outcomes=count_outcomes(group_types(questions), questions, a, b),
        context_lengths=lengths_of_right(questions, a, b, pieces),
        disagreements=find_disagreements(questions, a, b, disagreements),
    )


def _load_placed_logits(folder: PredictionFolder) -> tuple[TokenGrid, Logits] | None:
    """Load a folder's logits and where they lie, if it has them; they must be about the questions it answers."""
    if not folder.logits_path.exists():
        return None
    grid, logits = load_logits(folder.logits_path)
    if odd := set(grid.question_ids) ^ folder.answers.keys():
        raise FolderError(
            f"{folder.path}: logits.safetensors and predictions.json hold different questions, such as {min(odd)!r}; "
            "predict again"
        )
    return grid, logits


def _seconds(questions: Sequence[Question], folder: PredictionFolder) -> SecondAnswers | None:
    if folder.candidates is None:
        return None
    return score_seconds(questions, folder.answers, second_of_candidates(folder.answers, folder.candidates))


def _papers_seconds(questions: Sequence[Question], placed: tuple[TokenGrid, Logits] | None) -> SecondAnswers | None:
    if placed is None:
        return None
    grid, logits = placed
    if logits.shape[1] > 2:  # a joint readout scores pairs: its starts alone mean nothing
        return None
    firsts, seconds = paper_answers(grid, logits, {each.id: each.context for each in questions})
    return score_seconds(questions, firsts, seconds)


def _plain(groups: dict[str, dict[str, GroupScore]]) -> dict[str, Any]:
    return {name: {model: score._asdict() for model, score in each.items()} for name, each in groups.items()}
