import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from bertvision.errors import SettingsError
from bertvision.predictions.ensemble import combine_logits, log_softmax
from bertvision.predictions.logits import grid_of
from bertvision.windows.window import Window

LENGTHS = [5, 9, 4, 30]  # tokens of each window


@pytest.fixture
def grid():
    windows = [
        Window(number, np.zeros(length, dtype=np.int32), 2, np.arange(2 * length - 6, dtype=np.int32).reshape(-1, 2))
        for number, length in enumerate(LENGTHS)
    ]
    return grid_of(windows, ["q0", "q1", "q2", "q3"])


@pytest.fixture
def members():
    random = np.random.default_rng(0)
    return [random.normal(0, spread, (sum(LENGTHS), 2)).astype(np.float32) for spread in (1, 3, 10)]


def probabilities_of(logits):
    """Divide exponentials by their sum, window by window, starts and ends apart."""
    parts = np.split(logits.astype(np.float64), np.cumsum(LENGTHS)[:-1])
    return np.concatenate([np.exp(part) / np.exp(part).sum(axis=0) for part in parts])


def test_log_softmax_is_torchs_within_every_window(grid, members):
    for member in members:
        parts = torch.from_numpy(member).double().split(LENGTHS)
        expected = torch.cat([part.log_softmax(dim=0) for part in parts]).numpy()
        np.testing.assert_allclose(log_softmax(grid, member), expected, rtol=0, atol=1e-5)


def test_probabilities_of_a_window_are_one_in_sum(grid, members):
    for part in np.split(np.exp(log_softmax(grid, members[1])), np.cumsum(LENGTHS)[:-1]):
        np.testing.assert_allclose(part.sum(axis=0), [1, 1], atol=1e-5)


@pytest.mark.parametrize("shift", [-1e4, 1e4])
def test_large_logits_overflow_nowhere(grid, members, shift):
    logits = (members[0] + shift).astype(np.float32)
    normalised = log_softmax(grid, logits)
    assert np.isfinite(normalised).all()
    np.testing.assert_allclose(np.exp(normalised), probabilities_of(logits - np.float32(shift)), atol=1e-5)


def test_max_takes_the_larger_probability_token_by_token(grid, members):
    combined = np.exp(combine_logits(grid, members, "max"))
    np.testing.assert_allclose(combined, np.max([probabilities_of(member) for member in members], axis=0), atol=1e-6)


def test_mean_takes_the_mean_probability(grid, members):
    combined = np.exp(combine_logits(grid, members, "mean"))
    np.testing.assert_allclose(combined, sum(probabilities_of(member) for member in members) / 3, atol=1e-6)


def test_weighted_takes_the_mean_probability_by_weights(grid, members):
    combined = np.exp(combine_logits(grid, members, "weighted", (3.0, 1.0, 4.0)))
    one, two, three = (probabilities_of(member) for member in members)
    np.testing.assert_allclose(combined, (3 * one + two + 4 * three) / 8, atol=1e-6)


@pytest.mark.parametrize("how", ["max", "mean", "logits", "weighted"])
def test_every_way_equals_a_loop_over_tokens(grid, members, how):
    weights = (0.5, 0.2, 0.3) if how == "weighted" else None
    combined = combine_logits(grid, members, how, weights)
    windows = [range(first, stop) for first, stop in pairwise(grid.window_at.tolist())]
    for window in windows:
        for column in (0, 1):
            logits = [[float(member[token, column]) for token in window] for member in members]
            shares = [[math.exp(each) / sum(map(math.exp, row)) for each in row] for row in logits]
            for place, token in enumerate(window):
                if how == "logits":
                    expected = sum(row[place] for row in logits) / 3
                elif how == "max":
                    expected = math.log(max(row[place] for row in shares))
                else:
                    of = weights or (1 / 3, 1 / 3, 1 / 3)
                    expected = math.log(sum(weight * row[place] for weight, row in zip(of, shares, strict=True)))
                assert combined[token, column] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_only_the_proportion_of_weights_matters(grid, members, scale):
    weights = [scale * weight for weight in (3.0, 1.0, 4.0)]
    combined = combine_logits(grid, members, "weighted", weights)
    np.testing.assert_allclose(combined, combine_logits(grid, members, "weighted", (3.0, 1.0, 4.0)), atol=1e-5)


def test_equal_weights_are_the_mean(grid, members):
    weighted = combine_logits(grid, members, "weighted", (2.0, 2.0, 2.0))
    np.testing.assert_allclose(weighted, combine_logits(grid, members, "mean"), atol=1e-6)


@pytest.mark.parametrize(
    ("how", "weights", "told"),
    [
        ("weighted", None, "`weighted` needs weights, one for each of the 3 members"),
        ("mean", (1.0, 1.0, 1.0), "`mean` takes no weights; leave them out or choose `weighted`"),
        ("weighted", (1.0, 1.0), "got 2 weights for 3 members; give one for each"),
        ("weighted", (1.0, 0.0, 1.0), "the weight 0 is no positive number; leave out a member"),
        ("weighted", (1.0, -1.0, 1.0), "the weight -1 is no positive number"),
        ("weighted", (1.0, math.nan, 1.0), "the weight nan is no positive number"),
        ("weighted", (1.0, math.inf, 1.0), "the weight inf is no positive number"),
    ],
)
def test_weights_that_do_not_fit_are_refused(grid, members, how, weights, told):
    with pytest.raises(SettingsError, match=told):
        combine_logits(grid, members, how, weights)


def test_logits_takes_the_mean_logit(grid, members):
    combined = combine_logits(grid, members, "logits")
    np.testing.assert_allclose(combined, (members[0] + members[1] + members[2]) / 3, rtol=1e-6, atol=1e-6)


def test_two_members_are_combined_by_this_arithmetic():
    grid = grid_of([Window(0, np.zeros(4, dtype=np.int32), 2, np.array([[0, 1]], dtype=np.int32))], ["q0"])
    one = np.log(np.array([[4, 1], [2, 1], [1, 1], [1, 1]], dtype=np.float32))
    other = np.log(np.array([[1, 2], [1, 4], [2, 1], [4, 1]], dtype=np.float32))
    of_max = np.exp(combine_logits(grid, [one, other], "max"))
    of_mean = np.exp(combine_logits(grid, [one, other], "mean"))
    assert of_max == pytest.approx(np.array([[4 / 8, 1 / 4], [2 / 8, 4 / 8], [2 / 8, 1 / 4], [4 / 8, 1 / 4]]))
    assert of_mean[0] == pytest.approx([(4 / 8 + 1 / 8) / 2, (1 / 4 + 2 / 8) / 2])


@pytest.mark.parametrize("how", ["max", "mean", "logits"])
def test_a_combination_is_float32_like_its_members_and_leaves_them_alone(grid, members, how):
    before = [member.copy() for member in members]
    combined = combine_logits(grid, members, how)
    assert (combined.dtype, combined.shape) == (np.float32, members[0].shape)
    assert all(np.array_equal(member, copy) for member, copy in zip(members, before, strict=True))


@pytest.mark.parametrize("how", ["max", "mean", "logits"])
def test_the_order_of_members_does_not_matter(grid, members, how):
    forth, back = combine_logits(grid, members, how), combine_logits(grid, members[::-1], how)
    np.testing.assert_allclose(forth, back, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("how", ["max", "mean"])
def test_a_member_alone_is_its_own_log_softmax(grid, members, how):
    combined = combine_logits(grid, members[:1], how)
    np.testing.assert_allclose(combined, np.log(probabilities_of(members[0])), atol=1e-5)


@pytest.mark.parametrize("how", ["max", "mean", "logits"])
def test_a_member_that_scores_pairs_is_refused(grid, members, how):
    joint = np.concatenate([members[0], np.zeros((sum(LENGTHS), 4), np.float32)], axis=1)
    with pytest.raises(SettingsError, match="scores pairs .* leave it out"):
        combine_logits(grid, [members[0], joint], how)


def test_equal_grids_have_no_difference(grid):
    assert grid.difference(replace(grid, offsets=grid.offsets.copy())) is None


@pytest.mark.parametrize(
    ("name", "changed", "difference"),
    [
        ("question_ids", ("q0", "q1", "q2", "other"), "their questions differ"),
        ("question_ids", ("q0", "q1", "q2"), "their questions differ"),
        ("question_ids", ("q1", "q0", "q2", "q3"), "their questions differ"),
        ("question_of", np.array([0, 1, 2, 2], dtype=np.int32), "their windows or tokenizers differ"),
        ("window_at", np.array([0, 5, 14, 17, 48]), "their windows or tokenizers differ"),
        ("window_at", np.array([0, 5, 14, 18]), "their windows or tokenizers differ"),
        ("context_at", np.array([2, 2, 2, 3], dtype=np.int32), "their windows or tokenizers differ"),
        ("offsets", np.full((48, 2), -1, dtype=np.int32), "their windows or tokenizers differ"),
    ],
)
def test_grids_that_differ_are_named(grid, name, changed, difference):
    other = replace(grid, **{name: changed})
    assert grid.difference(other) == difference
    assert other.difference(grid) == difference
