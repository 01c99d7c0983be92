import torch
from torch import nn

from bertvision.heads.head import count_parameters
from bertvision.heads.poolers.inception import Inception, ReluConv
from bertvision.shapes import StackShape

LARGE = StackShape(25, 1024)


def test_the_network_has_the_size_of_the_original_and_nine_places_of_1024_features():
    pooler = Inception(LARGE, "learned", 386)
    assert pooler.features == 9 * 1024  # SPEC 3.6: 386, 193, 97, 49, 17, 9
    core = count_parameters(pooler).total - count_parameters(pooler.view).total
    assert core == 6_267_312  # SPEC 3.6, on one channel


def test_widths_shrink_and_tokens_stay():
    pooler, widths = Inception(StackShape(2, 32), "learned", 386).eval(), []
    for module in pooler.modules():
        if isinstance(module, ReluConv):
            module.register_forward_hook(lambda *call: widths.append(call[-1].shape[2:]))
    mask = torch.ones(1, 4).bool()
    pooler(torch.randn(1, 2, 4, 32), mask, mask.long())
    assert list(dict.fromkeys(widths)) == [(4, 193), (4, 97), (4, 49), (4, 17), (4, 9)]


def test_biases_start_above_zero_and_nothing_is_normalised():
    pooler = Inception(LARGE, "learned", 386)
    convs = [module.conv for module in pooler.modules() if isinstance(module, ReluConv)]
    assert len(convs) == 3 + 9 * 6
    assert all((conv.bias == 0.2).all() for conv in convs)
    assert not [module for module in pooler.modules() if isinstance(module, nn.BatchNorm2d)]


def test_dropout_follows_two_of_the_modules():
    blocks = Inception(StackShape(2, 32), "learned", 12).blocks
    assert [name for name, block in blocks.items() if isinstance(block.dropout, nn.Dropout)] == ["4a", "4d"]
    assert blocks["4a"].dropout.p == 0.2


def test_padding_gives_nothing_to_the_pools_and_convolutions_of_its_neighbours():
    torch.manual_seed(0)
    pooler = Inception(StackShape(2, 32), "learned", 12).eval()
    states = torch.randn(1, 2, 8, 32)
    short = states[:, :, :5]
    mask = torch.tensor([[True] * 5 + [False] * 3])
    expected = pooler(short, mask[:, :5], mask[:, :5].long())
    torch.testing.assert_close(pooler(states, mask, mask.long())[:, :5], expected)
