"""Answers of one or two models, each with what it is worth, taken apart: scores of groups, errors, second answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.data.example import Question
from bertvision.errors import DataError, FolderError
from bertvision.predictions.files import PredictionFolder
from bertvision.predictions.logits import Logits, TokenGrid, load_logits
from bertvision.predictions.prediction import Candidate
from bertvision.scoring.disagreements import OUTCOMES
from bertvision.scoring.label_tables import Grouping, count_context_pieces, count_words, group_questions
from bertvision.scoring.squad import Worths, answer_worths, normalize_answer
from bertvision.tables import Table, number_cell

Texts = dict[str, str]  # by question


class SecondAnswers(NamedTuple):
    """What the second answers are worth; percentages are None where there is nothing to divide by."""

    wrong: int  # first answers that equal no gold
    without_second: int  # of the wrong ones, those that have no other answer
    fixed: int  # of the wrong ones, those whose second answer equals a gold
    fixed_percent: float | None
    fixed_with_answer: int  # of the fixed ones, the answerable questions
    exact_of_wrong: float | None  # of the second answers to questions whose first answer is wrong
    f1_of_wrong: float | None
    exact: float | None  # of all second answers
    f1: float | None
    right_twice: int  # questions whose first and second answer equal a gold


ROWS = {
    "wrong": "first answer wrong",
    "without_second": "  of these: no second answer",
    "fixed": "  of these: second answer right",
    "fixed_percent": "  second answer right, %",
    "fixed_with_answer": "  second answer right and not empty",
    "exact_of_wrong": "  EM of the second answers",
    "f1_of_wrong": "  F1 of the second answers",
    "exact": "EM of all second answers",
    "f1": "F1 of all second answers",
    "right_twice": "first and second answer right",
}


def second_of_candidates(answers: Mapping[str, str], candidates: Mapping[str, Sequence[Candidate]]) -> Texts:
    """Return each question's likeliest candidate that is another answer than the one given, where there is one."""
    seconds = {}
    for question, given in answers.items():
        others = (each.text for each in candidates[question] if not _same(each.text, given))
        if (second := next(others, None)) is not None:
            seconds[question] = second
    return seconds


def score_seconds(
    questions: Sequence[Question], firsts: Mapping[str, str], seconds: Mapping[str, str]
) -> SecondAnswers:
    """Compare first and second answers with the golds."""
    first = answer_worths(questions, firsts).exact
    second = answer_worths([each for each in questions if each.id in seconds], seconds)
    wrong = [each.id for each in questions if not first[each.id]]
    tried = [each for each in wrong if each in seconds]
    fixed = [each for each in tried if second.exact[each]]
    return SecondAnswers(
        wrong=len(wrong),
        without_second=len(wrong) - len(tried),
        fixed=len(fixed),
        fixed_percent=100 * len(fixed) / len(wrong) if wrong else None,
        fixed_with_answer=sum(bool(normalize_answer(seconds[each])) for each in fixed),
        exact_of_wrong=_percent([second.exact[each] for each in tried]),
        f1_of_wrong=_percent([second.f1[each] for each in tried]),
        exact=_percent(list(second.exact.values())),
        f1=_percent(list(second.f1.values())),
        right_twice=sum(bool(first[each] and second.exact[each]) for each in second.exact),
    )


def second_section(seconds: SecondAnswers | None) -> Table:
    """Lay out what second answers are worth; without candidates its cells are empty."""
    rows = tuple((label, _cell(seconds, name)) for name, label in ROWS.items())
    note = (
        "The second answer is the likeliest candidate that is another answer than the one given, by the official "
        "metric. Empty: the folder has no candidates."
    )
    return Table("Second most likely answer", ("answers", "questions"), rows, note)


def _cell(way: SecondAnswers | None, name: str) -> str:
    value = getattr(way, name, None)
    return number_cell(value, 0 if isinstance(value, int) else 1)


def _same(one: str, other: str) -> bool:
    return normalize_answer(one) == normalize_answer(other)


def _percent(worths: Sequence[float]) -> float | None:
    return 100.0 * sum(worths) / len(worths) if worths else None


@dataclass(frozen=True)
class ScoredAnswers:
    """Answers by question, officially compared with the golds."""

    texts: Mapping[str, str]
    worths: Worths
    folder: PredictionFolder | None = None  # what else was read with them

    def worth(self, metric: str, questions: Sequence[Question]) -> npt.NDArray[np.float64]:
        """Return what the answers to some questions are worth, 0 to 1."""
        by_question = self.worths.exact if metric == "exact" else self.worths.f1
        return np.array([by_question[question.id] for question in questions], dtype=np.float64)

    def score(self, metric: str, questions: Sequence[Question]) -> float | None:
        """Return the mean worth in percent; None where there is no question."""
        # Python's own sum, as the official script: NumPy's can differ in the last digit.
        return 100.0 * sum(self.worth(metric, questions).tolist()) / len(questions) if questions else None

    def is_right(self, question: Question) -> bool:
        """Return whether the answer equals a gold."""
        return bool(self.worths.exact[question.id])

    def abstains(self, question: Question) -> bool:
        """Return whether the answer is "no answer", as the official script sees it."""
        return not normalize_answer(self.texts[question.id])


def score_answers(
    name: str, questions: Sequence[Question], texts: Mapping[str, str], folder: PredictionFolder | None = None
) -> ScoredAnswers:
    """Compare answers with the golds; they must be about exactly these questions."""
    known = {question.id for question in questions}
    if unknown := texts.keys() - known:
        raise DataError(
            f"{name}: {len(unknown):,} of its {len(texts):,} questions are not in the gold file, such as "
            f"{min(unknown)!r}; give the file that they were predicted for"
        )
    if missing := known - texts.keys():
        raise DataError(
            f"{name}: no prediction for {len(missing):,} of {len(known):,} questions, such as {min(missing)!r}; "
            "predict an empty string where the model gives no answer"
        )
    return ScoredAnswers(texts, answer_worths(questions, texts), folder)


Models = Mapping[str, ScoredAnswers]  # A, or A and B


class GroupScore(NamedTuple):
    """One model on one group, in percent; None where the group is empty."""

    exact: float | None
    f1: float | None
    abstained: float | None  # how often it gave no answer


class Errors(NamedTuple):
    """What a model's wrong answers are, by exact match."""

    wrong: int
    has_answer: int  # wrong answers to questions that have one
    has_answer_abstained: int  # of these, predicted as no answer
    abstained_percent: float | None  # of these, in percent
    no_answer: int  # questions without an answer that were answered


class LengthsOfRight(NamedTuple):
    """Questions of one outcome and the mean lengths of their contexts."""

    questions: int
    mean_words: float | None
    mean_pieces: float | None  # word pieces; None also where they are not known


HEADS = {"exact": "EM", "f1": "F1", "abstained": "abstained"}
ERROR_ROWS = {
    "wrong": "wrong",
    "has_answer": "  has answer",
    "has_answer_abstained": "    predicted as no answer",
    "abstained_percent": "    predicted as no answer, %",
    "no_answer": "  no answer, but one was given",
}


def break_down_spans(
    questions: Sequence[Question], models: Models
) -> tuple[dict[str, Any], list[Table], dict[str, Any], list[Table]]:
    """Take A's answers apart, and B's beside them: JSON values and tables, then those that set the two apart."""
    placed = None if models["A"].folder is None else _placed_logits(models["A"].folder)
    pieces = None if placed is None else count_context_pieces(placed[0])
    groupings = group_questions(questions, pieces)
    groups = {each.title: score_groups(each, models) for each in groupings}
    errors = {name: count_errors(questions, answers) for name, answers in models.items()}
    seconds = _seconds(questions, models["A"])
    plain = {
        "questions": len(questions),
        "counts": {each.title: {name: len(group) for name, group in each.groups.items()} for each in groupings},
        "groups": {title: _plain(each) for title, each in groups.items()},
        "errors": {name: each._asdict() for name, each in errors.items()},
        "second_answers": None if seconds is None else seconds._asdict(),
    }
    sections = [*(group_section(each, groups[each.title]) for each in groupings), error_section(errors)]
    sections.append(second_section(seconds))
    if "B" not in models:
        return plain, sections, {}, []
    lengths = lengths_of_right(questions, models["A"], models["B"], pieces)
    against = {"context_lengths": {name: each._asdict() for name, each in lengths.items()}}
    return plain, sections, against, [length_section(lengths)]


def score_groups(grouping: Grouping, models: Models) -> dict[str, dict[str, GroupScore]]:
    """Score every model on every group."""
    return {
        name: {model: _group_score(group, answers) for model, answers in models.items()}
        for name, group in grouping.groups.items()
    }


def count_errors(questions: Sequence[Question], answers: ScoredAnswers) -> Errors:
    """Count wrong answers, and how many answerable questions among them got no answer."""
    wrong = [each for each in questions if not answers.is_right(each)]
    has_answer = [each for each in wrong if not each.is_impossible]
    abstained = sum(answers.abstains(each) for each in has_answer)
    share = 100 * abstained / len(has_answer) if has_answer else None
    return Errors(len(wrong), len(has_answer), abstained, share, len(wrong) - len(has_answer))


def lengths_of_right(
    questions: Sequence[Question], a: ScoredAnswers, b: ScoredAnswers, pieces: Mapping[str, int] | None = None
) -> dict[str, LengthsOfRight]:
    """Measure the contexts of what both, one and none of two models get right; the papers counted word pieces."""
    of: dict[str, list[Question]] = {outcome: [] for outcome in OUTCOMES.values()}
    for question in questions:
        of[OUTCOMES[a.is_right(question), b.is_right(question)]].append(question)
    groups = {"all": list(questions), "A right": of["both"] + of["only A"], "B right": of["both"] + of["only B"], **of}
    return {name: _lengths(group, pieces) for name, group in groups.items()}


def group_section(grouping: Grouping, scores: Mapping[str, Mapping[str, GroupScore]]) -> Table:
    """Lay out a grouping's scores; an empty group has empty cells."""
    models = list(next(iter(scores.values())))
    shown = ("exact", "f1", "abstained") if len(models) == 1 else ("exact", "f1")  # three of each are over 80 columns
    heads = [HEADS[what] if len(models) == 1 else f"{model} {HEADS[what]}" for model in models for what in shown]
    rows = tuple(
        (
            name,
            f"{len(grouping.groups[name]):,}",
            *(_value_cell(getattr(each[model], what)) for model in models for what in shown),
        )
        for name, each in scores.items()
    )
    return Table(f"By {grouping.title}", (grouping.title, "questions", *heads), rows, grouping.note)


def error_section(errors: Mapping[str, Errors]) -> Table:
    """Lay out what the wrong answers are."""
    rows = tuple(
        (label, *(_value_cell(getattr(each, name)) for each in errors.values())) for name, label in ERROR_ROWS.items()
    )
    heads = ["questions"] if len(errors) == 1 else list(errors)
    return Table("Errors by exact match", ("answers", *heads), rows)


def length_section(lengths: Mapping[str, LengthsOfRight]) -> Table:
    """Lay out the lengths of contexts."""
    rows = tuple(
        (name, f"{each.questions:,}", number_cell(each.mean_words), number_cell(each.mean_pieces))
        for name, each in lengths.items()
    )
    header = ("right by exact match", "questions", "mean words", "mean word pieces")
    note = "Word pieces are those of A's tokenizer. Empty: no such question, or A's folder has no logits."
    return Table("Context length by who is right", header, rows, note)


def _lengths(group: Sequence[Question], pieces: Mapping[str, int] | None) -> LengthsOfRight:
    words = _mean([count_words(each.context) for each in group])
    return LengthsOfRight(len(group), words, None if pieces is None else _mean([pieces[each.id] for each in group]))


def _group_score(group: Sequence[Question], answers: ScoredAnswers) -> GroupScore:
    abstained = [answers.abstains(each) for each in group]
    share = _mean(abstained)
    return GroupScore(answers.score("exact", group), answers.score("f1", group), None if share is None else 100 * share)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _value_cell(value: float | None) -> str:
    return number_cell(value, 0 if isinstance(value, int) else 1)


def _placed_logits(folder: PredictionFolder) -> tuple[TokenGrid, Logits] | None:
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


def _seconds(questions: Sequence[Question], answers: ScoredAnswers) -> SecondAnswers | None:
    folder = answers.folder
    if folder is None or folder.candidates is None:
        return None
    return score_seconds(questions, folder.answers, second_of_candidates(folder.answers, folder.candidates))


def _plain(groups: dict[str, dict[str, GroupScore]]) -> dict[str, Any]:
    return {name: {model: score._asdict() for model, score in each.items()} for name, each in groups.items()}
