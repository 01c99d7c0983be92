"""A threshold that is chosen for the accuracy of the answers that are given."""

import numpy as np
import pytest

from bertvision.errors import DataError
from bertvision.scoring.calibration import Decision, fit_decision, judge, threshold_of_accuracy


@pytest.fixture(scope="session")
def answers_of(make_answers):
    """Return a function of odds and whether the best span is right there."""

    def make(odds, is_right):
        golds = ["weir" if right else None for right in is_right]
        return make_answers([{"": float(each), "weir": 0.0} for each in odds], golds)

    return make


def draw(count, seed):
    """Draw questions whose answers are right with a probability that falls with the odds, from 1 to 0.5."""
    random = np.random.default_rng(seed)
    odds = random.uniform(-1, 1, count)
    return odds, random.uniform(size=count) < 0.75 - odds / 4


def true_accuracy(threshold):
    return 0.75 - (threshold - 1) / 8  # the mean over odds from -1 to the threshold


def test_the_accuracy_holds_on_other_questions_as_often_as_promised(answers_of):
    thresholds = [threshold_of_accuracy(answers_of(*draw(1000, seed)), 0.85) for seed in range(40)]
    assert np.mean([true_accuracy(each) >= 0.85 for each in thresholds]) >= 0.9
    assert np.median(thresholds) > -0.5  # and yet a quarter of all questions is answered: 0.85 is reached at 0.2


def test_the_most_questions_are_answered_at_which_it_is_shown(answers_of):
    odds = np.linspace(-1, 1, 200)
    answers = answers_of(odds, odds < 0)  # the first half of the answers is right, and no other
    strict, free = threshold_of_accuracy(answers, 0.9), threshold_of_accuracy(answers, 0.5)
    assert strict == pytest.approx(odds[99])
    assert free > strict
    decision = fit_decision(answers, 0.9)
    judged = judge([answers], [decision])
    assert (decision.threshold, judged.answered, judged.right) == (strict, 50.0, 100.0)
    assert judge([answers], [Decision(-2.0)]).right == 100.0  # none is given


def test_an_accuracy_that_is_not_reached_is_said_with_what_is(answers_of):
    odds, is_right = np.linspace(-1, 1, 40), np.arange(40) % 2 == 0
    with pytest.raises(
        DataError, match=r"these 40 questions show that 90% .*: at best 50% of \d+ answers; ask for less"
    ):
        threshold_of_accuracy(answers_of(odds, is_right), 0.9)


def test_answers_that_are_right_but_too_few_to_show_it_are_said_to_be(answers_of):
    with pytest.raises(DataError, match=r"show that 99\.9% .*: at best 100% of \d+ answers, too few to be sure; ask"):
        threshold_of_accuracy(answers_of(np.linspace(-1, 1, 20), np.ones(20, bool)), 0.999)
