from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertvision.scoring.calibration import risk_coverage_curve, risks_by_coverage


def test_the_risk_is_the_share_wrong_among_the_most_confident():
    risks = risks_by_coverage(np.array([0.2, 0.9, 0.5, 0.7]), np.array([False, True, False, True]))
    np.testing.assert_allclose(risks, [0, 0, 1 / 3, 2 / 4])


@given(st.lists(st.tuples(st.sampled_from([0.2, 0.5, 0.9]), st.booleans()), min_size=1, max_size=5))
def test_ties_count_as_the_mean_over_all_orders(rows):
    orders = [
        order for order in permutations(rows) if all(a[0] >= b[0] for a, b in zip(order, order[1:], strict=False))
    ]
    counts = np.arange(1, len(rows) + 1)
    expected = np.mean([np.cumsum([not right for _, right in order]) / counts for order in orders], axis=0)
    confidence, is_right = (np.array(column) for column in zip(*rows, strict=True))
    np.testing.assert_allclose(risks_by_coverage(confidence, is_right), expected)


def test_a_curve_ends_with_all_answers():
    risks = np.linspace(0, 0.5, 1000)
    curve = risk_coverage_curve(risks, 101)
    assert len(curve) == 101
    assert (curve[0], curve[-1]) == ((0.001, 0.0), (1.0, 0.5))
    assert risk_coverage_curve(risks[:3], 101) == [(pytest.approx((n + 1) / 3), risks[n]) for n in range(3)]
