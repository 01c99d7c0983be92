import pytest

from bertvision.predictions.prediction import Candidate
from bertvision.scoring.answers import score_seconds, second_of_candidates, second_section


def candidates(*texts):
    return tuple(Candidate(text, 0.0, 0.0, 0.1) for text in texts)


@pytest.mark.parametrize(
    ("given", "texts", "second"),
    [
        ("1887", ("1887", "by"), "by"),
        ("1887", ("1887", "in", "by"), "in"),
        ("1887", ("1887", "The 1887.", "by"), "by"),  # the same answer to the official script
        ("", ("", "1887"), "1887"),
        ("1887", ("1887", ""), ""),
        ("", ("1887", "", "by"), "1887"),  # declined by a threshold: the best span is the second answer
        ("1887", ("1887",), None),
        ("1887", (), None),
    ],
)
def test_the_second_answer_is_the_first_that_differs_from_the_given(given, texts, second):
    assert second_of_candidates({"q": given}, {"q": candidates(*texts)}) == ({} if second is None else {"q": second})


def test_second_answers_are_scored_where_the_first_are_wrong(questions):
    firsts = {"when": "1887", "who": "", "why": "Leeds", "where": "Leeds"}
    seconds = {"when": "in 1887", "who": "Hannah Coyle", "why": ""}
    found = score_seconds(questions, firsts, seconds)
    assert found._asdict() == pytest.approx(
        {
            "wrong": 3,  # all but `when`
            "without_second": 1,  # `where`
            "fixed": 1,  # `why`
            "fixed_percent": 100 / 3,
            "fixed_with_answer": 0,
            "exact_of_wrong": 50.0,  # of `who` and `why`
            "f1_of_wrong": 100 * (2 / 3 + 1) / 2,
            "exact": 100 * 2 / 3,
            "f1": 100 * (1 + 2 / 3 + 1) / 3,
            "right_twice": 1,  # `when`
        }
    )


def test_fixed_questions_with_an_answer_are_counted(questions):
    firsts = dict.fromkeys(("when", "who", "why", "where"), "Leeds")
    found = score_seconds(questions, firsts, {**dict.fromkeys(("who", "why", "where"), ""), "when": "1887"})
    assert (found.fixed, found.fixed_with_answer) == (3, 1)


def test_nothing_wrong_leaves_empty_cells(questions):
    right = {"when": "1887", "who": "Hannah Coyle of Leeds", "why": "", "where": ""}
    section = second_section(score_seconds(questions, right, {}))
    assert {cell for _, cell in section.rows} == {"0", ""}
    assert {name.strip(): cell for name, cell in section.rows}["second answer right, %"] == ""
    assert {cell for _, cell in second_section(None).rows} == {""}
