import pytest
import torch
from torch import nn

from bertvision.heads.head import count_parameters
from bertvision.heads.poolers.cnn import AveragePool, Conv
from bertvision.heads.poolers.image_networks import Inception, ModifiedXception, ReluConv, Xception
from bertvision.shapes import StackShape

ABBREVIATED = [341, 339, 170]  # SPEC 3.4
FULL = [341, 339, 170, 85, 43, 22]  # SPEC 3.5
LARGE = StackShape(25, 1024)


def widths_of(pooler, inputs):
    """The widths that the network's layers leave, each once."""
    maps, widths = torch.randn(1, *inputs), []
    for layer in pooler.eval().net:
        maps = layer(maps)
        widths.append(maps.shape[-1])
    return list(dict.fromkeys(widths))


@pytest.mark.parametrize(("full", "widths", "features"), [(False, ABBREVIATED, 512), (True, FULL, 2048)])
def test_widths_are_those_of_the_original(full, widths, features):
    pooler = Xception(StackShape(26, 1024), full=full)
    assert widths_of(pooler, (26, 1, 1024)) == widths
    assert pooler.features == features
    assert pooler.net[0].weight.shape[1] == 26  # the states are the channels


def test_features_are_the_average_over_the_width_and_the_last_state():
    pooler, states = Xception(StackShape(3, 32), skip=True).eval(), torch.randn(2, 3, 1, 32)
    found = pooler(states, torch.ones(2, 1).bool(), torch.zeros(2, 1).long())
    torch.testing.assert_close(
        found[1, 0, :512], pooler.net(states[1:].transpose(1, 2)[0, :, :, None])[0, :, 0].mean(dim=-1)
    )
    torch.testing.assert_close(found[:, :, 512:], states[:, -1])


def test_one_block_is_the_sum_of_its_two_ways():
    torch.manual_seed(0)
    block = Xception(StackShape(3, 32)).net[-1].eval()
    maps = torch.randn(2, 128, 1, 9)
    convs = [layer for layer in block.layers if isinstance(layer, Conv)]
    assert [conv.groups for conv in convs] == [128, 1, 256, 1]
    assert [conv.weight.shape[0] for conv in convs] == [128, 256, 256, 512]
    assert isinstance(block.layers[-1], AveragePool)
    scale = 1.001**0.5  # of a batch normalisation that has seen nothing
    straight = torch.einsum("oc,ncw->now", block.shortcut[0].weight[:, :, 0, 0], maps[:, :, 0, ::2]) / scale
    torch.testing.assert_close((block(maps) - block.layers(maps))[:, :, 0], straight, rtol=1e-4, atol=1e-5)


def test_the_full_network_has_eight_blocks_that_keep_what_they_are_given():
    net = Xception(StackShape(3, 32), full=True).net
    assert sum(isinstance(getattr(layer, "shortcut", None), nn.Identity) for layer in net) == 8
    assert sum(isinstance(layer, AveragePool) for layer in net.modules()) == 4  # the code's; not max


@pytest.mark.parametrize("hidden", [1, 8, 9, 10])
@pytest.mark.parametrize("full", [False, True])
def test_states_narrower_than_the_stem_are_read_too(hidden, full):
    pooler = Xception(StackShape(2, hidden), full=full).eval()
    assert pooler(torch.randn(1, 2, 1, hidden), torch.ones(1, 1).bool(), torch.zeros(1, 1).long()).isfinite().all()


@pytest.mark.parametrize(("place", "channels"), [(7, 128), (9, 728)])  # the block of 256, the first in the middle
def test_a_block_leaves_its_input_to_the_shortcut(place, channels):
    """A ReLU in place at a block's start would cut what the shortcut passes on."""
    block = Xception(StackShape(3, 32), full=True).net[place].eval()
    maps = -torch.ones(1, channels, 1, 4)  # in which a ReLU finds nothing
    torch.testing.assert_close(block(maps.clone()), block.shortcut(maps))


def make_modified(hidden=32, width=12):
    torch.manual_seed(0)
    return ModifiedXception(StackShape(3, hidden), "learned", width)


def test_modified_widths_are_those_its_published_size_needs():
    pooler, widths = make_modified(width=386).eval(), []
    maps = torch.randn(1, 1, 1, 386)
    for layer in pooler.net:
        maps = layer(maps)
        widths.append(maps.shape[-1])
    assert list(dict.fromkeys(widths)) == [78, 39, 20]  # SPEC 3.6
    assert pooler.features == 20 * 2048


def test_the_modified_network_has_three_middle_blocks_and_an_exit_that_keeps_the_width():
    net = make_modified().net
    shortcuts = [layer.shortcut for layer in net if hasattr(layer, "shortcut")]
    assert [isinstance(shortcut, nn.Identity) for shortcut in shortcuts] == [False, False, True, True, True, False]
    assert [shortcut[0].stride for shortcut in shortcuts if isinstance(shortcut, nn.Sequential)] == [2, 2, 1]


def test_batch_statistics_of_the_modified_network_are_those_of_real_tokens_alone():
    pooler = make_modified().train()
    pooler.view.down.weight.data.normal_()
    states, mask = torch.randn(2, 3, 4, 32), torch.tensor([[True] * 4, [True] + [False] * 3])
    pooler(states, mask, mask.long())
    seen = pooler.view(states, mask, mask.long())[mask].detach().numpy()  # [5 real tokens, 12]
    kernel = pooler.net[0].weight.detach().numpy()[:, 0, 0]  # [32, 3]
    windows = [seen[:, 0:3], seen[:, 5:8], seen[:, 10:12]]  # stride 5; the last reaches over the right edge
    maps = sum((window @ kernel[:, : window.shape[1]].T).sum(axis=0) for window in windows) / (5 * 3)
    torch.testing.assert_close(pooler.net[1].running_mean, torch.from_numpy(0.01 * maps), rtol=1e-3, atol=1e-6)


def test_dropout_of_the_modified_network_can_be_left_out():
    assert make_modified().dropout.p == 0.2
    assert isinstance(ModifiedXception(StackShape(3, 32), "learned", 12, dropout_rate=0.0).dropout, nn.Identity)


def test_inception_has_the_size_of_the_original_and_nine_places_of_1024_features():
    pooler = Inception(LARGE, "learned", 386)
    assert pooler.features == 9 * 1024  # SPEC 3.6: 386, 193, 97, 49, 17, 9
    core = count_parameters(pooler).total - count_parameters(pooler.view).total
    assert core == 6_267_312  # SPEC 3.6, on one channel


def test_inceptions_widths_shrink_and_tokens_stay():
    pooler, widths = Inception(StackShape(2, 32), "learned", 386).eval(), []
    for module in pooler.modules():
        if isinstance(module, ReluConv):
            module.register_forward_hook(lambda *call: widths.append(call[-1].shape[2:]))
    mask = torch.ones(1, 4).bool()
    pooler(torch.randn(1, 2, 4, 32), mask, mask.long())
    assert list(dict.fromkeys(widths)) == [(4, 193), (4, 97), (4, 49), (4, 17), (4, 9)]


def test_inceptions_biases_start_above_zero_and_nothing_is_normalised():
    pooler = Inception(LARGE, "learned", 386)
    convs = [module.conv for module in pooler.modules() if isinstance(module, ReluConv)]
    assert len(convs) == 3 + 9 * 6
    assert all((conv.bias == 0.2).all() for conv in convs)
    assert not [module for module in pooler.modules() if isinstance(module, nn.BatchNorm2d)]


def test_dropout_follows_two_of_inceptions_modules():
    blocks = Inception(StackShape(2, 32), "learned", 12).blocks
    assert [name for name, block in blocks.items() if isinstance(block.dropout, nn.Dropout)] == ["4a", "4d"]
    assert blocks["4a"].dropout.p == 0.2


def test_padding_gives_nothing_to_inceptions_pools_and_convolutions_of_its_neighbours():
    torch.manual_seed(0)
    pooler = Inception(StackShape(2, 32), "learned", 12).eval()
    states = torch.randn(1, 2, 8, 32)
    short = states[:, :, :5]
    mask = torch.tensor([[True] * 5 + [False] * 3])
    expected = pooler(short, mask[:, :5], mask[:, :5].long())
    torch.testing.assert_close(pooler(states, mask, mask.long())[:, :5], expected)
