"""Exact intervals of shares, beside those of scipy."""

import pytest
from scipy.stats import binomtest

from bertvision.scoring.bootstrap import binomial_tail, exact_difference, exact_interval, half_right


@pytest.mark.parametrize(
    ("most", "draws", "share", "expected"),
    [(2, 10, 0.1, 0.9298092), (0, 22, 0.1, 0.9**22), (3, 3, 0.5, 1.0), (40, 100, 0.5, 0.0284440), (0, 5, 1.0, 0.0)],
)
def test_the_tail_is_that_of_published_tables(most, draws, share, expected):
    assert binomial_tail(most, draws, share) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(
    ("hits", "draws"), [(8, 8), (0, 8), (7, 8), (1, 1), (12, 24), (55, 100), (872, 872), (8000, 9815)]
)
def test_the_interval_of_a_share_is_that_of_scipys_exact_one(hits, draws):
    expected = binomtest(hits, draws).proportion_ci(method="exact")
    assert exact_interval(hits, draws) == pytest.approx((100 * expected.low, 100 * expected.high), abs=1e-9)


@pytest.mark.parametrize(
    ("one", "other"), [(0, 0), (1, 0), (5, 0), (6, 0), (8, 1), (7, 1), (12, 3), (30, 15), (30, 16)]
)
def test_a_difference_holds_0_just_where_mcnemars_exact_test_says_chance(one, other):
    low, high = exact_difference(one, other, 50)
    is_chance = one == other or binomtest(one, one + other).pvalue > 0.05
    assert (low <= 0 <= high) == is_chance
    assert low <= 100 * (one - other) / 50 <= high


def test_what_few_examples_show_is_said_with_the_interval_of_a_half():
    assert half_right(10) == "with 5 of 10 right, the 95% interval is 19 to 81%"  # binomtest(5, 10): 18.7 to 81.3
