import pytest

from bertvision.analysis.scored import score_answers
from bertvision.errors import DataError
from bertvision.metrics.squad import score_squad2

TEXTS = ("In 1887!", "Hannah Coyle", "Leeds", "")  # right; 2 of 2 and 4 words; made up; declined rightly


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
