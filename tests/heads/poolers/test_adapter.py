import numpy as np
import pytest
import torch
from torch.nn import functional as F

from bertvision.heads.poolers.adapter import Adapter, Mix4, MixedAdapter, TwoAdapters
from bertvision.heads.poolers.layers import width_of
from bertvision.heads.readouts import SpanReadout
from bertvision.shapes import StackShape

SHAPE = StackShape(layers=3, hidden=8)
STATES = torch.randn(2, 3, 5, 8)
SEEN = (STATES, torch.ones(2, 5).bool(), torch.zeros(2, 5).long())


@pytest.mark.parametrize(
    ("share", "hidden", "width"), [(0.377, 1024, 386), (0.377, 384, 145), (0.0625, 384, 24), (7, 384, 7)]
)
def test_a_width_is_a_number_or_a_share_of_the_hidden_size(share, hidden, width):
    assert width_of(share, hidden) == width


def test_an_adapter_lays_the_layers_of_one_feature_side_by_side():
    pooler = Adapter(*SHAPE, 2, skip=True)
    features = pooler(*SEEN)
    expected = F.gelu(STATES[1, 2, 3] @ pooler.down.weight.T + pooler.down.bias, approximate="tanh")
    assert features.shape[-1] == pooler.features == 2 * 3 + 8
    torch.testing.assert_close(features[1, 3, [0 * 3 + 2, 1 * 3 + 2]], expected)  # element j * layers + s
    torch.testing.assert_close(features[1, 3, 6:], STATES[1, 2, 3])  # the skip is the last state


def test_an_unshared_adapter_with_tied_weights_equals_the_shared_one():
    shared, unshared = Adapter(*SHAPE, 4), Adapter(*SHAPE, 4, shared=False)
    unshared.down.weight.data.copy_(shared.down.weight.data)
    shared.down.bias.data.fill_(0.3)
    unshared.down.bias.data.fill_(0.3)
    torch.testing.assert_close(unshared(*SEEN), shared(*SEEN))


def test_an_unshared_adapter_projects_every_layer_by_its_own_weights():
    pooler = Adapter(*SHAPE, 2, shared=False)
    pooler.down.weight.data.normal_()
    pooler.down.bias.data.normal_()
    expected = F.gelu(STATES[0, 1, 4] @ pooler.down.weight[1].T + pooler.down.bias[1], approximate="tanh")
    torch.testing.assert_close(pooler(*SEEN)[0, 4, [1, 3 + 1]], expected)


def test_the_adapter_of_2021_has_the_exact_gelu():
    exact = Adapter(*SHAPE, 2, gelu="none")
    exact.down.weight.data.normal_()
    expected = F.gelu(STATES[0, 0, 0] @ exact.down.weight.T)
    torch.testing.assert_close(exact(*SEEN)[0, 0, [0, 3]], expected, rtol=1e-5, atol=1e-6)


def test_an_adapter_starts_small_and_its_readout_as_glorot():
    torch.manual_seed(0)
    pooler = Adapter(25, 1024, 386)
    readout = SpanReadout(pooler.features).linear
    assert pooler.down.weight.abs().max().item() <= 2e-3  # cut at two standard deviations
    assert pooler.down.weight.std().item() == pytest.approx(0.88e-3, rel=0.02)  # a normal of 1e-3 cut there has this
    limit = (6 / (9650 + 2)) ** 0.5
    assert readout.weight.abs().max().item() <= limit
    assert readout.weight.std().item() == pytest.approx(limit / 3**0.5, rel=0.02)
    assert not pooler.down.bias.any()
    assert not readout.bias.any()


@pytest.mark.parametrize(("mix", "mixed"), [("average", STATES.mean(dim=1)), ("last", STATES[:, -1])])
def test_a_mixed_adapter_projects_the_mix(mix, mixed):
    pooler = MixedAdapter(SHAPE, mix, 4, skip=True)
    expected = F.gelu(mixed @ pooler.down.weight.T, approximate="tanh")
    torch.testing.assert_close(pooler(*SEEN), torch.cat([expected, STATES[:, -1]], dim=-1))


def test_two_adapters_read_the_layers_and_their_mix():
    pooler = TwoAdapters(SHAPE, 4)
    features = pooler(*SEEN)
    assert features.shape[-1] == pooler.features == 4 * 3 + 4
    torch.testing.assert_close(features[..., 12:], pooler.of_mix(*SEEN))


def test_mix4_projects_each_mix_by_its_own_weights(shape, seen, randomised, numpy_of):
    pooler = randomised(Mix4(shape, 2))
    given, features = numpy_of(pooler), pooler(*seen)
    shares = np.exp(given["weights"]) / np.exp(given["weights"]).sum(axis=1, keepdims=True)
    for mix in range(4):
        state = sum(shares[mix, layer] * seen[0][1, layer, 3].numpy() for layer in range(3))
        before = given["down.weight"][mix] @ state + given["down.bias"][mix]
        expected = F.gelu(torch.from_numpy(before), approximate="tanh")
        torch.testing.assert_close(features[1, 3, 2 * mix : 2 * mix + 2], expected)
    torch.testing.assert_close(features[..., 8:], seen[0][:, -1])


def test_the_mixes_of_mix4_start_at_four_depths():
    shares = Mix4(StackShape(25, 8), 2).weights.softmax(dim=1)
    assert shares.argmax(dim=1).tolist() == [3, 9, 15, 21]  # the middles of the quarters of 25: 3.125 - 0.5 and so on
    assert shares.max() < 0.12  # a broad view
