import runpy
from pathlib import Path

import numpy as np
import pytest

from bertvision.predictions.logits import TokenGrid, save_logits

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "null_shift.py"))
IMPOSSIBLE = np.array([False, False, True, True])


def answers(odds, f1=(1.0, 0.5, 0.0, 0.0)):
    unknown = np.full(4, np.nan)
    return TOOL["Answers"](np.array(odds, float), unknown, unknown, np.array(f1) // 1, np.array(f1))


def test_log_odds_are_those_of_the_softmax_and_do_not_see_a_shift_of_all_logits(tmp_path):
    """Two questions of one window; of the third, which has two windows, nothing is said."""
    grid = TokenGrid(
        ("one", "other", "long"),
        np.array([0, 1, 2, 2], np.int32),
        np.array([0, 3, 5, 7, 9], np.int64),
        np.ones(4, np.int32),
        np.zeros((9, 2), np.int32),
    )
    logits = np.random.default_rng(1).normal(size=(9, 2)).astype(np.float32)
    save_logits(tmp_path / "logits.safetensors", grid, logits)
    found = TOOL["log_odds_of"](tmp_path / "logits.safetensors")
    assert found.keys() == {"one", "other"}
    for question, window in (("one", logits[:3]), ("other", logits[3:5])):
        chance = np.exp(window[0]) / np.exp(window).sum(axis=0)
        assert found[question] == pytest.approx(tuple(np.log(chance / (1 - chance))), rel=1e-5)
    save_logits(tmp_path / "logits.safetensors", grid, logits + 2)
    assert TOOL["log_odds_of"](tmp_path / "logits.safetensors")["one"] == pytest.approx(found["one"], rel=1e-5)


def test_a_row_whose_odds_are_a_controls_moved_is_what_the_control_is_at_a_moved_threshold():
    control = answers([-4.0, -2.0, -1.0, 1.0])
    row = answers(2 * control.odds + 3)
    found = TOOL["compare"](row, control, IMPOSSIBLE)
    assert (found["slope"], found["offset"], found["correlation"]) == pytest.approx((2.0, 3.0, 1.0))
    assert -2.0 <= found["moved_to"] < -1.0  # where the odds of two questions lie above it
    # At 0 the control abstains from one question and has 1 + 0.5 + 0 + 1 of 4; moved, from both that have no answer.
    assert TOOL["describe"](control, IMPOSSIBLE)["f1"] == pytest.approx(62.5)
    assert found["moved_f1"] == TOOL["describe"](row, IMPOSSIBLE)["f1"] == pytest.approx(87.5)
    assert (found["no_answer"], found["moved_no_answer"]) == (1, 1)
    assert (found["has_answer"], found["moved_has_answer"]) == (0, 0)


def test_what_the_best_threshold_gives_and_how_well_odds_tell_questions_apart():
    assert TOOL["best_f1"](answers([-4.0, -2.0, -1.0, 1.0]), IMPOSSIBLE) == (pytest.approx(87.5), -2.0)
    assert TOOL["auc_of"](np.array([-4.0, -2.0, -1.0, 1.0]), IMPOSSIBLE) == 1.0
    assert TOOL["auc_of"](np.array([-4.0, 2.0, -1.0, 1.0]), IMPOSSIBLE) == 0.5


def test_what_a_moved_threshold_alone_costs_on_questions_with_an_answer():
    row = answers([-4.0, -2.0, -3.0, 1.0])  # to abstain from one of two unanswerable ones the threshold falls to -3
    assert TOOL["as_papers"](row, IMPOSSIBLE, 0.0, 0.5) == pytest.approx({"exact": 0.0, "f1": -25.0})
