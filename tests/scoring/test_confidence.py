import numpy as np
import pytest

from bertvision.data.example import GoldAnswer, Question
from bertvision.errors import DataError
from bertvision.predictions.prediction import Candidate
from bertvision.scoring.confidence import build_answers


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize(("threshold", "taken"), [(0.0, 1), (-2.0, 0)])  # odds are -1: answered, declined
def test_a_confidence_is_the_softmax_of_scores_divided_by_the_temperature(make_answers, temperature, threshold, taken):
    answers = make_answers([{"": 1.0, "weir": 2.0, "mill": 0.5}], ["weir"])
    weights = np.exp(np.array([1.0 - threshold, 2.0, 0.5]) / temperature)
    np.testing.assert_allclose(answers.confidence(threshold, temperature), [weights[taken] / weights.sum()])


def test_lists_of_different_lengths_do_not_share_probability(make_answers):
    answers = make_answers([{"": 0.0, "a weir": 1.0}, {"": 0.0, "weir": 1.0, "mill": 1.0, "bridge": 1.0}], [None, None])
    np.testing.assert_allclose(answers.confidence(0.0, 1.0), [np.e / (1 + np.e), np.e / (1 + 3 * np.e)])


def answers_of(candidates, odds, gold="weir"):
    answers = (GoldAnswer(gold, 0),) if gold else ()
    return build_answers([Question("q", "?", "the weir", answers, "")], {"q": "weir"}, {"q": odds}, {"q": candidates})


def test_a_text_that_is_listed_twice_is_one_answer():
    listed = (
        Candidate("weir", 0, 0, 0.4),
        Candidate("weir", 0, 0, 0.3),
        Candidate("", 0, 0, 0.2),
        Candidate("x", 0, 0, 0.1),
    )
    np.testing.assert_allclose(answers_of(listed, np.log(0.2 / 0.4)).confidence(0.0, 1.0), [0.7])


@pytest.mark.parametrize(
    ("listed", "threshold", "expected"),
    [
        ((Candidate("", 0, 0, 1.0),), 0.0, 0.8),  # a list of one, where no answer wins: p(no answer) is 4 p(weir)
        ((Candidate("weir", 0, 0, 1.0),), 0.0, 0.8),  # another program's, without no answer
        ((Candidate("weir", 0, 0, 1.0),), np.log(16), 0.8),  # a threshold that takes 16 times from no answer
    ],
)
def test_what_a_short_list_lacks_is_known_from_the_odds(listed, threshold, expected):
    np.testing.assert_allclose(answers_of(listed, np.log(4)).confidence(threshold, 1.0), [expected])


def test_a_list_without_both_is_refused():
    with pytest.raises(DataError, match="'q': its n-best holds neither"):
        answers_of((Candidate("mill", 0, 0, 1.0),), 0.0)


def test_a_probability_that_was_written_as_0_is_a_small_one():
    listed = (Candidate("", 0, 0, 1.0), Candidate("weir", 0, 0, 0.0))
    assert answers_of(listed, 800.0).confidence(0.0, 1.0) == [1.0]
    assert 0 <= answers_of(listed, 800.0).confidence(800.0, 20.0)[0] <= 1


def test_a_declined_question_is_right_where_it_is_unanswerable(make_answers):
    scores = [{"": 1.0, "weir": 0.0}, {"": 1.0, "weir": 0.0}, {"": 0.0, "the weir": 1.0}, {"": 0.0, "old weir": 1.0}]
    answers = make_answers(scores, ["weir", None, "weir", "weir"])
    assert answers.worth(answers.exact, 0.0).tolist() == [0, 1, 1, 0]
    assert answers.worth(answers.exact, 2.0).tolist() == [1, 0, 1, 0]
    assert answers.worth(answers.f1, 2.0).tolist() == [1, 0, 1, pytest.approx(2 / 3)]
