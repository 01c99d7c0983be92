import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertvision.scoring import metrics

GOLD = np.array([1, 1, 1, 0, 0, 1, 0, 1])
FOUND = np.array([1, 0, 1, 0, 1, 1, 0, 0])  # 3 true positives, 1 false one, 2 false negatives, 2 true negatives


def test_accuracy_f1_and_matthews_are_those_of_the_four_counts():
    assert metrics.accuracy(GOLD, FOUND) == pytest.approx(100 * 5 / 8)
    precision, recall = 3 / 4, 3 / 5
    assert metrics.f1(GOLD, FOUND) == pytest.approx(100 * 2 * precision * recall / (precision + recall))
    assert metrics.matthews(GOLD, FOUND) == pytest.approx(100 * (3 * 2 - 1 * 2) / math.sqrt(4 * 5 * 3 * 4))


def test_matthews_is_the_correlation_of_two_classes():
    assert metrics.matthews(GOLD, FOUND) == pytest.approx(100 * np.corrcoef(GOLD, FOUND)[0, 1])


def test_matthews_of_one_class_alone_is_0_as_in_scikit_learn():
    assert metrics.matthews(GOLD, np.ones(8, dtype=int)) == 0.0


def test_matthews_of_many_rows_does_not_overflow():
    gold, found = np.tile(GOLD, 50_000), np.tile(FOUND, 50_000)
    assert metrics.matthews(gold, found) == pytest.approx(metrics.matthews(GOLD, FOUND))


def test_f1_of_a_class_that_is_never_found_is_0_and_of_one_that_is_not_there_has_no_value():
    nothing = np.zeros(8, dtype=int)
    assert metrics.f1(GOLD, nothing) == 0.0
    assert metrics.f1(nothing, nothing) is None


def test_macro_f1_is_the_mean_over_the_classes_that_occur():
    gold, found = np.array([0, 0, 2, 2, 5]), np.array([0, 2, 2, 2, 7])
    # F1 of 0: 2/3; of 2: 4/5; of 5 and 7: 0
    assert metrics.macro_f1(gold, found) == pytest.approx(100 * (2 / 3 + 4 / 5) / 4)


SETS = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]])
FOUND_SETS = np.array([[1, 0, 0], [1, 0, 0], [0, 0, 0], [1, 1, 0]])


def test_label_sets_are_scored_together_by_label_and_as_a_whole():
    # Of label 0: 2 right, 1 too many; of label 1: 1 right, 1 missed; label 2 is nowhere.
    assert metrics.micro_f1(SETS, FOUND_SETS) == pytest.approx(100 * 2 * 3 / (2 * 3 + 1 + 1))
    assert metrics.macro_f1(SETS, FOUND_SETS) == pytest.approx(100 * (4 / 5 + 2 / 3) / 2)
    assert metrics.exact_sets(SETS, FOUND_SETS) == 50.0


def test_label_sets_that_are_all_empty_have_no_f1():
    assert metrics.micro_f1(np.zeros((2, 3)), np.zeros((2, 3))) is None
    assert metrics.macro_f1(np.zeros((2, 3)), np.zeros((2, 3))) is None


X, Y = np.array([1.0, 2.0, 2.0, 4.0, 7.5]), np.array([0.5, 3.0, 1.0, 1.0, 9.0])


def test_pearson_is_the_covariance_by_both_deviations():
    by_hand = ((X - X.mean()) * (Y - Y.mean())).mean() / (X.std() * Y.std())
    assert metrics.pearson(X, Y) == pytest.approx(100 * by_hand)


def test_spearman_is_pearson_of_ranks_where_equal_numbers_share_theirs():
    ranks = np.array([1, 2.5, 2.5, 4, 5]), np.array([1, 4, 2.5, 2.5, 5])
    assert metrics.spearman(X, Y) == pytest.approx(100 * np.corrcoef(*ranks)[0, 1])
    assert metrics.spearman(X, Y) == pytest.approx(76.31578947368422)  # what scipy 1.17.1's spearmanr gives


@given(st.permutations(range(6)))
def test_spearman_without_ties_is_the_schoolbook_formula(order):
    squares = sum((place - rank) ** 2 for place, rank in enumerate(order))
    expected = 1 - 6 * squares / (6 * (36 - 1))
    assert metrics.spearman(np.arange(6) ** 3, np.array(order)) == pytest.approx(100 * expected)


def test_a_constant_has_no_correlation():
    assert metrics.pearson(X, np.full(5, 3.0)) is None
    assert metrics.spearman(np.full(5, 3.0), X) is None
    assert metrics.pearson(X[:1], Y[:1]) is None


def test_errors_of_numbers_are_in_their_own_unit():
    gold, found = np.array([1.0, 2.0, 4.0]), np.array([1.0, 4.0, 3.0])
    assert metrics.rmse(gold, found) == pytest.approx(math.sqrt((0 + 4 + 1) / 3))
    assert metrics.mae(gold, found) == pytest.approx(1.0)


def test_scoring_needs_no_torch():
    code = "import sys, bertvision.scoring.metrics; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
