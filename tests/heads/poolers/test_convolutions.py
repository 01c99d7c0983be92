import numpy as np
import pytest
import torch

from bertvision.heads.poolers.cnn import (
    AveragePool,
    Conv,
    MaxPool,
    batch_norm,
    dropout,
    real_tokens,
    same_padding,
    shrunk,
    spread,
)

MASK = torch.tensor([[True, True, False], [True, False, False]])


def make_maps(values):
    return torch.tensor(values, dtype=torch.float)[None, None, None]


@pytest.mark.parametrize(
    ("width", "reach", "stride", "padding"),
    [
        (1024, 11, 2, (4, 5)),  # 512 windows end at 511 * 2 + 11 = 1033
        (339, 3, 2, (1, 1)),  # SPEC 3.4: 170 windows
        (170, 3, 2, (0, 1)),  # 85 windows
        (385, 3, 5, (0, 0)),  # 77 windows end before the width does
        (1, 7, 3, (3, 3)),
    ],
)
def test_padding_is_that_of_keras(width, reach, stride, padding):
    assert same_padding(width, reach, stride) == padding


def test_a_convolution_starts_at_the_left_edge_where_one_value_of_padding_is_enough():
    conv = Conv(1, 1, (1, 3), stride=2)
    conv.weight.data = torch.tensor([1.0, 10, 100]).view(1, 1, 1, 3)
    assert conv(make_maps([1, 2, 3, 4, 5, 6])).flatten().tolist() == [321, 543, 65]  # 6 5 . has its padding right


def test_a_convolution_that_pads_nothing_leaves_out_what_fills_no_window():
    conv = Conv(1, 1, (1, 3), stride=3, padding="valid")
    conv.weight.data.fill_(1)
    assert conv(make_maps([1, 2, 3, 4, 5, 6, 7, 8])).flatten().tolist() == [6, 15]


def test_a_dilated_convolution_reaches_as_far_as_its_steps():
    maps = torch.zeros(1, 1, 1, 101, requires_grad=True)
    Conv(1, 1, (1, 7), dilation=8)(maps)[..., 50].sum().backward()
    assert maps.grad.flatten().nonzero().flatten().tolist() == [26, 34, 42, 50, 58, 66, 74]


def test_a_convolution_starts_as_glorot_does():
    torch.manual_seed(0)
    limit = (6 / (128 * 7 + 64 * 7)) ** 0.5
    assert Conv(128, 64, (1, 7)).weight.abs().max().item() == pytest.approx(limit, rel=0.01)
    alone = (6 / (3 * 128 + 3)) ** 0.5  # Keras' limit for a kernel of [1, 3, 128 channels, 1]
    assert Conv(128, 128, (1, 3), groups=128).weight.abs().max().item() == pytest.approx(alone, rel=0.01)


@pytest.mark.parametrize(
    ("values", "means"),
    [([1, 2, 3, 4, 5, 6], [2, 4, 5.5]), ([1, 2, 3, 4, 5], [1.5, 3, 4.5]), ([1, 2], [1.5]), ([7], [7])],
)
def test_padding_takes_no_part_in_an_average(values, means):
    assert AveragePool(2)(make_maps(values)).flatten().tolist() == means


@pytest.mark.parametrize(
    ("window", "stride", "largest"),
    [(3, 3, [-1, -3, -6]), (2, 2, [-1, -3, -5, -7]), (3, 1, [-1, -1, -2, -3, -4, -5, -6])],
)
def test_padding_is_never_the_largest(window, stride, largest):
    pooled = MaxPool((1, window), stride)(make_maps([-1, -2, -3, -4, -5, -6, -7]))
    assert pooled.flatten().tolist() == largest  # windows of three: . 1 2, 3 4 5, 6 7 .


@pytest.mark.parametrize("width", range(1, 13))
@pytest.mark.parametrize("stride", [2, 3, 5])
def test_every_width_keeps_something(width, stride):
    maps, left = torch.randn(1, 1, 1, width), -(-width // stride)
    layers = [Conv(1, 1, (1, 11), stride=stride), Conv(1, 1, (1, 1), stride=stride), MaxPool((1, stride), stride)]
    assert {layer(maps).shape[-1] for layer in layers} == {left} == {shrunk(width, stride)}


def test_batch_statistics_are_kept_at_the_pace_of_keras():
    norm, maps = batch_norm(2), torch.randn(5, 2, 1, 3)
    found = norm.train()(maps)
    values = maps.numpy()
    mean, variance = values.mean(axis=(0, 2, 3)), values.var(axis=(0, 2, 3))
    expected = (values - mean[:, None, None]) / np.sqrt(variance + 1e-3)[:, None, None]
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(norm.running_mean.numpy(), 0.01 * mean, rtol=1e-4, atol=1e-7)


def test_no_dropout_is_none_at_all():
    assert dropout(0.2).p == 0.2
    assert isinstance(dropout(0), torch.nn.Identity)


def test_what_was_gathered_goes_back_to_its_place():
    values = torch.arange(12.0).view(2, 3, 2)
    gathered = values[real_tokens(MASK)]
    assert gathered.tolist() == [[0, 1], [2, 3], [6, 7]]
    assert spread(gathered, real_tokens(MASK), MASK).tolist() == [[[0, 1], [2, 3], [0, 0]], [[6, 7], [0, 0], [0, 0]]]
