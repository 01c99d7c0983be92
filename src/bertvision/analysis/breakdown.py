"""Scores of one or two models by groups of questions, and what their errors are."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bertvision.analysis.groups import Grouping, count_words
from bertvision.analysis.outcomes import OUTCOMES, outcome_of
from bertvision.analysis.scored import ScoredAnswers
from bertvision.tables import Table, number_cell
from bertvision.tasks.task import Question

Models = Mapping[str, ScoredAnswers]  # A, or A and B


class GroupScore(NamedTuple):
    """One model on one group, in percent; None where the group is empty."""

    exact: float | None
    f1: float | None
    declined: float | None  # how often it gave no answer


class Errors(NamedTuple):
    """What a model's wrong answers are, by exact match."""

    wrong: int
    has_answer: int  # wrong answers to questions that have one
    has_answer_declined: int  # of these, predicted as no answer
    declined_share: float | None  # of these, in percent
    no_answer: int  # questions without an answer that were answered


class LengthsOfRight(NamedTuple):
    """Questions of one outcome and the mean lengths of their contexts."""

    questions: int
    mean_words: float | None
    mean_pieces: float | None  # word pieces; None also where they are not known


HEADS = {"exact": "EM", "f1": "F1", "declined": "declined"}
ERROR_ROWS = {
    "wrong": "wrong",
    "has_answer": "  has answer",
    "has_answer_declined": "    predicted as no answer",
    "declined_share": "    predicted as no answer, %",
    "no_answer": "  no answer, but one was given",
}


def score_groups(grouping: Grouping, models: Models) -> dict[str, dict[str, GroupScore]]:
    """Score every model on every group."""
    return {
        name: {model: _group_score(group, answers) for model, answers in models.items()}
        for name, group in grouping.groups.items()
    }


def count_errors(questions: Sequence[Question], answers: ScoredAnswers) -> Errors:
    """Count wrong answers, and how many answerable questions among them were declined."""
    wrong = [each for each in questions if not answers.is_right(each)]
    has_answer = [each for each in wrong if not each.is_impossible]
    declined = sum(answers.is_declined(each) for each in has_answer)
    share = 100 * declined / len(has_answer) if has_answer else None
    return Errors(len(wrong), len(has_answer), declined, share, len(wrong) - len(has_answer))


def lengths_of_right(
    questions: Sequence[Question], a: ScoredAnswers, b: ScoredAnswers, pieces: Mapping[str, int] | None = None
) -> dict[str, LengthsOfRight]:
    """Measure the contexts of what both, one and none of two models get right; the papers counted word pieces."""
    of: dict[str, list[Question]] = {outcome: [] for outcome in OUTCOMES.values()}
    for question in questions:
        of[outcome_of(question, a, b)].append(question)
    groups = {"all": list(questions), "A right": of["both"] + of["only A"], "B right": of["both"] + of["only B"], **of}
    return {name: _lengths(group, pieces) for name, group in groups.items()}


def group_section(grouping: Grouping, scores: Mapping[str, Mapping[str, GroupScore]]) -> Table:
    """Lay out a grouping's scores; an empty group has empty cells."""
    models = list(next(iter(scores.values())))
    shown = ("exact", "f1", "declined") if len(models) == 1 else ("exact", "f1")  # three of each are over 80 columns
    heads = [HEADS[what] if len(models) == 1 else f"{model} {HEADS[what]}" for model in models for what in shown]
    rows = tuple(
        (
            name,
            f"{len(grouping.groups[name]):,}",
            *(_cell(getattr(each[model], what)) for model in models for what in shown),
        )
        for name, each in scores.items()
    )
    return Table(f"By {grouping.title}", (grouping.title, "questions", *heads), rows, grouping.note)


def error_section(errors: Mapping[str, Errors]) -> Table:
    """Lay out what the wrong answers are."""
    rows = tuple(
        (label, *(_cell(getattr(each, name)) for each in errors.values())) for name, label in ERROR_ROWS.items()
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
    declined = [answers.is_declined(each) for each in group]
    share = _mean(declined)
    return GroupScore(answers.score("exact", group), answers.score("f1", group), None if share is None else 100 * share)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _cell(value: float | None) -> str:
    return number_cell(value, 0 if isinstance(value, int) else 1)
