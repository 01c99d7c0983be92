import pytest

from bertvision.errors import DataError
from bertvision.scoring.answers import (
    count_errors,
    error_section,
    group_section,
    length_section,
    lengths_of_right,
    score_answers,
    score_groups,
)
from bertvision.scoring.label_tables import Grouping, group_types
from bertvision.scoring.squad import score_squad2

TEXTS = ("In 1887!", "Hannah Coyle", "Leeds", "")  # right; 2 of 2 and 4 words; made up; declined rightly


def test_every_group_is_scored_by_itself(questions, scored):
    grouping = group_types(questions)
    scores = score_groups(grouping, {"A": scored("1887", "Hannah Coyle", "", "")})
    assert scores["has answer"]["A"] == pytest.approx((50, 100 * (1 + 2 / 3) / 2, 0))
    assert scores["no answer"]["A"] == (100, 100, 100)
    section = group_section(grouping, scores)
    assert section.header == ("question type", "questions", "EM", "F1", "abstained")
    assert section.rows == (("has answer", "2", "50.0", "83.3", "0.0"), ("no answer", "2", "100.0", "100.0", "100.0"))


def test_an_empty_group_has_empty_cells(questions, scored):
    grouping = Grouping("kind", {"some": questions[:1], "none": []})
    models = {"A": scored("1887", "", "", ""), "B": scored("", "", "", "")}
    section = group_section(grouping, score_groups(grouping, models))
    assert section.header == ("kind", "questions", "A EM", "A F1", "B EM", "B F1")
    assert section.rows == (("some", "1", "100.0", "100.0", "0.0", "0.0"), ("none", "0", "", "", "", ""))


def test_errors_are_told_apart(questions, scored):
    errors = count_errors(questions, scored("", "Leeds", "Leeds", ""))
    assert errors == (3, 2, 1, 50.0, 1)  # of the two answerable, one was abstained from
    assert [cells[1] for cells in error_section({"A": errors}).rows] == ["3", "2", "1", "50.0", "1"]


def test_no_errors_have_no_share(questions, scored):
    errors = count_errors(questions, scored("1887", "Hannah Coyle of Leeds", "", ""))
    assert errors == (0, 0, 0, None, 0)
    assert [cells[1] for cells in error_section({"A": errors}).rows] == ["0", "0", "0", "", "0"]


def test_the_contexts_of_what_each_alone_gets_right_are_measured(ask):
    asked = [ask(str(words), context="w " * words) for words in (10, 20, 40, 80)]
    a, b = (
        score_answers("", asked, dict(zip(("10", "20", "40", "80"), texts, strict=True)))
        for texts in (("", "", "w", ""), ("", "w", "", ""))
    )
    found = lengths_of_right(asked, a, b, {"10": 1, "20": 3, "40": 9, "80": 27})
    assert {name: tuple(each) for name, each in found.items()} == {
        "all": (4, 37.5, 10),
        "A right": (3, 110 / 3, 31 / 3),
        "B right": (3, 130 / 3, 37 / 3),
        "both": (2, 45, 14),
        "only A": (1, 20, 3),
        "only B": (1, 40, 9),
        "neither": (0, None, None),
    }
    assert length_section(found).rows[-2:] == (("only B", "1", "40.0", "9.0"), ("neither", "0", "", ""))
    assert lengths_of_right(asked, a, b)["all"] == (4, 37.5, None)


def test_scores_are_the_official_ones(questions, scored):
    official = score_squad2(questions, dict(zip(("when", "who", "why", "where"), TEXTS, strict=True)))
    assert scored(*TEXTS).score("exact", questions) == official["exact"] == 50
    assert scored(*TEXTS).score("f1", questions) == official["f1"]


def test_no_questions_have_no_score(scored):
    assert scored(*TEXTS).score("f1", []) is None


def test_an_answer_of_articles_and_marks_is_none(questions, scored):
    answers = scored("the", " ", "...", "a weir")
    assert [answers.abstains(each) for each in questions] == [True, True, True, False]


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ({}, "model: no prediction for 4 of 4 questions, such as 'when'"),
        ({"when": "", "who": "", "why": ""}, "model: no prediction for 1 of 4 questions, such as 'where'"),
        (
            dict.fromkeys(("when", "who", "why", "where", "zoo", "how"), ""),
            "model: 2 of its 6 questions are not in the gold file, such as 'how'; give the file",
        ),
    ],
)
def test_answers_to_other_questions_are_refused(questions, texts, problem):
    with pytest.raises(DataError) as raised:
        score_answers("model", questions, texts)
    assert str(raised.value).startswith(problem)
