import numpy as np
import pytest

from bertvision.scoring.confidence import fit_temperature, log_loss


def draw(count, spread, make_answers, sharper=1.0):
    """Let the truth be drawn from the softmax of scores that the model knows but multiplies by `sharper`."""
    random = np.random.default_rng(3)
    scores = random.normal(0, spread, size=(count, 4))
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    texts = np.array(["", "weir", "mill", "bridge"])
    golds = [random.choice(texts, p=row) or None for row in shares]
    return make_answers([dict(zip(texts.tolist(), row.tolist(), strict=True)) for row in scores * sharper], golds)


@pytest.mark.parametrize("sharper", [1.0, 3.0, 0.4])
def test_the_temperature_undoes_what_the_model_multiplied_its_scores_by(make_answers, sharper):
    answers = draw(4000, 2.0, make_answers, sharper)
    assert fit_temperature(answers, 0.0) == pytest.approx(sharper, rel=0.08)


def test_no_temperature_of_a_fine_grid_has_a_lower_loss(make_answers):
    answers = draw(200, 1.0, make_answers, sharper=2.0)
    is_right = answers.worth(answers.exact, 0.3) > 0
    losses = [log_loss(answers.confidence(0.3, each), is_right) for each in np.geomspace(0.05, 20, 2001)]
    fitted = log_loss(answers.confidence(0.3, fit_temperature(answers, 0.3)), is_right)
    assert fitted <= min(losses) + 1e-7


@pytest.mark.parametrize(("gold", "bound"), [("weir", 0.05), ("mill", 20.0)])
def test_where_all_are_right_or_all_are_wrong_the_temperature_stays_within_bounds(make_answers, gold, bound):
    answers = make_answers([{"": 0.0, "weir": 1.0, "mill": 0.5}] * 3, [gold] * 3)
    assert fit_temperature(answers, 0.0) == pytest.approx(bound, rel=1e-3)


def test_the_log_loss_is_that_of_the_formula_and_finite():
    confidence, is_right = np.array([0.8, 0.5, 1.0]), np.array([True, False, False])
    assert log_loss(confidence[:2], is_right[:2]) == pytest.approx(-(np.log(0.8) + np.log(0.5)) / 2)
    assert np.isfinite(log_loss(confidence, is_right))
