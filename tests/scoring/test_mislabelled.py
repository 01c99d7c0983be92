import numpy as np

from bertvision.scoring.mislabelled import suspect_classes, suspect_labels, suspect_numbers


def test_a_class_is_suspect_where_another_is_as_probable_as_it_is_for_its_own_rows():
    golds = np.array([0, 0, 0, 1, 1, 1])
    first = np.array([0.9, 0.8, 0.1, 0.2, 0.45, 0.65])
    # Class 0 has on average (0.9 + 0.8 + 0.1) / 3 = 0.6 where it is the gold, class 1 (0.8 + 0.55 + 0.35) / 3 = 0.57.
    # Row 2 says class 1 with 0.9, margin 0.8; row 5 class 0 with 0.65, margin 0.3.
    assert suspect_classes(golds, np.stack([first, 1 - first], axis=1)) == [2, 5]
    first[5] = 0.55  # below what is usual for class 0
    assert suspect_classes(golds, np.stack([first, 1 - first], axis=1)) == [2]


def test_a_class_that_no_row_has_makes_no_suspects():
    shares = np.array([[0.2, 0.1, 0.7], [0.1, 0.8, 0.1]])
    assert suspect_classes(np.array([0, 1]), shares) == []


def test_each_label_is_judged_by_itself_and_a_row_stands_once():
    golds = np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    there = np.array([[0.9, 0.1], [0.05, 0.9], [0.1, 0.9], [0.2, 0.8]])
    assert suspect_labels(golds, there) == [1]


def test_a_number_is_suspect_where_its_error_is_far_beyond_the_usual():
    errors = np.array([0.1, -0.1, 0.2, -0.2, 0.15, -0.15, 5.0, -9.0])
    golds = np.arange(8.0)
    assert suspect_numbers(golds, golds + errors) == [7, 6]
    assert suspect_numbers(golds, golds) == []
