"""The second most likely answers: would the runner-up have been right?"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bertvision.data.example import Question
from bertvision.metrics.squad import answer_worths, normalize_answer
from bertvision.predictions.prediction import Candidate
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
