import math

import numpy as np
import pytest

from bertvision.errors import SettingsError
from bertvision.tasks import KINDS


def combine_rows(kind, members, how, weights=None, labels=()):
    return KINDS[kind].combine(None, members, how, weights, labels)


def logits(*rows):
    return np.array(rows, dtype=np.float32)


def of(*shares):
    """Logits whose softmax is the given shares."""
    return logits(*([math.log(share) for share in row] for row in shares))


ONE, OTHER = of((0.5, 0.25, 0.25), (0.2, 0.2, 0.6)), of((0.1, 0.8, 0.1), (0.4, 0.4, 0.2)) + 7  # a shift changes nothing


@pytest.mark.parametrize("kind", ["class", "answerable", "tags"])
def test_classes_are_combined_by_their_probabilities(kind):
    mean = combine_rows(kind, [ONE, OTHER], "mean")
    assert mean.dtype == np.float32
    np.testing.assert_allclose(np.exp(mean), [[0.3, 0.525, 0.175], [0.3, 0.3, 0.4]], rtol=1e-5)
    largest = combine_rows(kind, [ONE, OTHER], "max")
    np.testing.assert_allclose(np.exp(largest), [[0.5, 0.8, 0.25], [0.4, 0.4, 0.6]], rtol=1e-5)
    weighted = combine_rows(kind, [ONE, OTHER], "weighted", [3, 1])
    np.testing.assert_allclose(np.exp(weighted), [[0.4, 0.3875, 0.2125], [0.25, 0.25, 0.5]], rtol=1e-5)


def test_logits_are_averaged_as_they_are():
    found = combine_rows("class", [logits((1, 5), (0, 2)), logits((3, -1), (4, 4))], "logits")
    np.testing.assert_array_equal(found, [[2, 2], [2, 3]])


def test_each_label_of_a_set_has_a_probability_of_its_own():
    even, sure = logits((0, math.log(3))), logits((math.log(3), math.log(3)))  # 0.5, 0.75 and 0.75, 0.75
    chances = {how: 1 / (1 + np.exp(-combine_rows("labels", [even, sure], how))) for how in ("mean", "max")}
    np.testing.assert_allclose(chances["mean"], [[0.625, 0.75]], rtol=1e-6)
    np.testing.assert_allclose(chances["max"], [[0.75, 0.75]], rtol=1e-6)


def test_endings_are_compared_within_their_row():
    one = of((0.5, 0.25, 0.25), (0.2, 0.2, 0.6)).reshape(6, 1)
    other = of((0.1, 0.8, 0.1), (0.4, 0.4, 0.2)).reshape(6, 1)
    found = combine_rows("choice", [one, other], "mean", labels=("0", "1", "2"))
    assert found.shape == (6, 1)
    np.testing.assert_allclose(np.exp(found[:, 0]), [0.3, 0.525, 0.175, 0.3, 0.3, 0.4], rtol=1e-5)


def test_numbers_are_averaged():
    members = [logits((1,), (2,)), logits((3,), (-2,))]
    for how in ("mean", "logits"):
        np.testing.assert_array_equal(combine_rows("number", members, how), [[2], [0]])
    np.testing.assert_array_equal(combine_rows("number", members, "weighted", [1, 3]), [[2.5], [-1]])


def test_the_largest_of_numbers_is_refused():
    with pytest.raises(SettingsError, match="numbers have no probabilities whose largest could be taken"):
        combine_rows("number", [logits((1,)), logits((2,))], "max")


def test_certainty_stays_finite():
    sure, unsure = logits((1000, -1000)), logits((-1000, -1000))
    for kind in ("class", "labels"):
        for how in ("mean", "max"):
            for members in ([sure, unsure], [sure, sure]):
                assert np.isfinite(combine_rows(kind, members, how)).all()
