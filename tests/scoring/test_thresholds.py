import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertvision.scoring.calibration import threshold_curve, tune_threshold

WORTH = {"weir": 1.0, "old weir": 2 / 3, "mill": 0.0, None: 0.0}  # F1 of "weir" against each gold
ROWS = st.lists(
    st.tuples(st.integers(-300, 300).map(lambda odds: odds / 100), st.sampled_from(list(WORTH))),
    min_size=1,
    max_size=12,
    unique_by=lambda row: row[0],
)


@pytest.fixture(scope="session")
def answers_of(make_answers):
    """Return a function of (odds, gold) pairs; the best span is always "weir"."""
    return lambda rows: make_answers([{"": odds, "weir": 0.0} for odds, _ in rows], [gold for _, gold in rows])


def f1_at(rows, threshold):
    return np.mean([float(gold is None) if odds > threshold else WORTH[gold] for odds, gold in rows])


@given(rows=ROWS)
def test_no_threshold_has_a_better_f1_than_the_tuned_one(rows, answers_of):
    possible = [f1_at(rows, threshold) for threshold in (-4.0, *(odds for odds, _ in rows))]
    assert f1_at(rows, tune_threshold(answers_of(rows))) == pytest.approx(max(possible))


def test_where_declining_everything_is_best_the_threshold_lies_below_all_odds(answers_of):
    assert tune_threshold(answers_of([(-1.0, None), (2.0, "mill")])) == pytest.approx(-1.0)
    assert tune_threshold(answers_of([(-1.0, None), (2.0, "mill")])) < -1.0


@given(rows=ROWS)
def test_a_curve_holds_the_f1_at_every_threshold_where_there_are_few(rows, answers_of):
    curve = threshold_curve(answers_of(rows), 101)
    assert [threshold for threshold, _, _ in curve] == pytest.approx(sorted(odds for odds, _ in rows))
    assert [f1 for _, _, f1 in curve] == pytest.approx(
        [100 * f1_at(rows, odds) for odds, _ in sorted(rows, key=lambda row: row[0])]
    )


def test_a_curve_has_as_many_points_as_asked_for(answers_of):
    rows = [(number / 10, "weir" if number % 3 else None) for number in range(500)]
    curve = threshold_curve(answers_of(rows), 101)
    assert len(curve) == 101
    assert (curve[0][0], curve[-1][0]) == (0.0, 49.9)
    for threshold, exact, _ in curve:
        answered = int(threshold * 10 + 1.5)
        right = sum(number % 3 > 0 if number < answered else number % 3 == 0 for number in range(500))
        assert exact == pytest.approx(right / 5)
