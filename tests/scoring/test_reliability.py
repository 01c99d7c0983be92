import numpy as np
import pytest

from bertvision.scoring.calibration import Bin, calibration_error, reliability_bins


def test_answers_are_sorted_into_fifteen_bins_of_equal_width():
    confidence = np.array([0.0, 0.05, 0.95, 0.97, 1.0, 0.5])
    is_right = np.array([False, True, True, True, False, True])
    bins = reliability_bins(confidence, is_right)
    assert [each.size for each in bins] == [2, 1, 3]
    assert bins[0] == pytest.approx((0, 0.025, 0.5, 2))
    assert bins[1] == pytest.approx((7, 0.5, 1.0, 1))
    assert bins[2] == pytest.approx((14, (0.95 + 0.97 + 1.0) / 3, 2 / 3, 3))


def test_a_bound_belongs_to_the_bin_above_it():
    below, at = 0.19, 0.2  # 3 / 15
    assert [each.size for each in reliability_bins(np.array([below, at]), np.array([True, True]))] == [1, 1]
    assert [each.size for each in reliability_bins(np.array([at, 0.21]), np.array([True, True]))] == [2]


def test_the_calibration_error_weighs_distances_by_counts():
    bins = [Bin(1, 0.1, 0.0, 5), Bin(13, 0.9, 0.6, 15)]
    assert calibration_error(bins) == pytest.approx((5 * 0.1 + 15 * 0.3) / 20)
