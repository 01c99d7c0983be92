import numpy as np
import pytest

from bertvision.scoring.calibration import Decision, calibration_scores, fit_decision, judge
from bertvision.scoring.squad import score_squad2

# Odds of -2, -1, 1 and 2; the best span is always "weir".
SCORES = [{"": -2.0, "weir": 0.0}, {"": -1.0, "weir": 0.0}, {"": 1.0, "weir": 0.0}, {"": 2.0, "weir": 0.0}]


def sure(odds):
    """Return the probability of the likelier one of two."""
    return 1 / (1 + np.exp(-abs(odds)))


def test_all_numbers_of_four_answers_are_those_of_arithmetic(make_answers):
    answers = make_answers(SCORES, ["weir", None, "weir", None])
    found = judge([answers], [Decision()])  # right, wrong, wrong (declined), right
    assert (found.exact, found.f1) == (50, 50)
    high, low = sure(2), sure(1)  # 0.881 and 0.731, in the bins from 13/15 and from 10/15
    assert found.error == pytest.approx((2 * (1 - high) + 2 * low) / 4)
    assert found.area == pytest.approx((0 + 0 + 1 / 3 + 2 / 4) / 4)


def test_parts_are_judged_together_each_by_its_own_decision(make_answers):
    golds = ["weir", None, "weir", None]
    first, second = make_answers(SCORES[:2], golds[:2]), make_answers(SCORES[2:], golds[2:])
    found = judge([first, second], [Decision(-1.5), Decision(1.5)])
    assert found.exact == 100
    assert sum(each.size for each in found.bins) == 4


def test_tuned_scores_are_the_official_ones_at_the_decision(make_answers):
    answers = make_answers(SCORES, ["weir", None, "weir", None])
    scores, curves = calibration_scores(answers, Decision(), Decision(1.5, 2.0))
    official = score_squad2(answers.questions, answers.best_spans, answers.null_odds, 1.5)
    assert (scores["tuned_f1"], scores["tuned_exact"]) == (official["f1"], official["exact"]) == (75, 75)
    assert (scores["tuned_threshold"], scores["temperature"]) == (1.5, 2.0)
    assert scores["tuned_below_best_f1"] == official["best_f1"] - 75
    assert curves.reliability.keys() == {"before", "after"}
    assert curves.threshold == [(-2.0, 75.0, 75.0), (-1.0, 50.0, 50.0), (1.0, 75.0, 75.0), (2.0, 50.0, 50.0)]


def test_a_decision_is_fitted_threshold_first(make_answers):
    held_out = make_answers(SCORES, ["weir", "weir", "weir", None])
    assert fit_decision(held_out).threshold == pytest.approx(1.0)
