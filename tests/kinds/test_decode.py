import numpy as np
import pytest

from bertvision.kinds.labels import predict_answerable, predict_choices, predict_classes, predict_label_sets
from bertvision.kinds.numbers import predict_numbers
from bertvision.predictions.prediction import RowPrediction


def logits(*rows):
    return np.array(rows, dtype=np.float32)


def test_the_likeliest_class_is_taken_with_all_probabilities():
    one, two = predict_classes(["a", "b"], logits([0, np.log(3)], [1000, 0]))
    assert (one.id, one.label, one.probabilities) == ("a", 1, pytest.approx((0.25, 0.75)))
    assert (two.label, two.probabilities) == (0, pytest.approx((1.0, 0.0)))


def test_every_label_above_the_threshold_is_taken():
    rows = logits([np.log(3), -1000, 0])  # probabilities 3/4, 0, 1/2
    (found,) = predict_label_sets(["a"], rows)
    assert (found.label, found.probabilities) == ((1, 0, 0), pytest.approx((0.75, 0.0, 0.5)))
    assert predict_label_sets(["a"], rows, threshold=0.4)[0].label == (1, 0, 1)


def test_numbers_are_the_logits():
    assert predict_numbers(["a", "b"], logits([2.5], [-1])) == [RowPrediction("a", 2.5), RowPrediction("b", -1.0)]


def test_the_best_ending_is_taken_among_a_row_s_own():
    found = predict_choices(["a", "b"], logits([0], [5], [1], [9], [8], [9.5]), endings=3)
    assert [each.label for each in found] == [1, 2]
    assert sum(found[0].probabilities) == pytest.approx(1)


def test_a_question_has_no_answer_only_if_all_its_windows_say_so():
    windows = logits([0, 1], [0, 3], [2, 0], [0, 2], [1, 0])
    both, mixed, answered = predict_answerable(["a", "b", "c"], np.array([0, 0, 1, 1, 2]), windows)
    assert [each.label for each in (both, mixed, answered)] == [1, 0, 0]
    assert [each.paper_label for each in (both, mixed, answered)] == [1, 1, 0]  # any window
    least = 1 / (1 + np.exp(-1))  # of the two windows of `both`
    assert both.probabilities == pytest.approx((1 - least, least))
    assert mixed.probabilities == pytest.approx((1 - 1 / (1 + np.exp(2)), 1 / (1 + np.exp(2))))


def test_windows_of_a_question_need_not_be_neighbours():
    found = predict_answerable(["a", "b"], np.array([0, 1, 0]), logits([0, 1], [1, 0], [1, 0]))
    assert [(each.label, each.paper_label) for each in found] == [(0, 1), (0, 0)]
