import torch
from torch import nn

from bertvision.heads.poolers.modified_xception import ModifiedXception
from bertvision.shapes import StackShape


def make_pooler(hidden=32, width=12):
    torch.manual_seed(0)
    return ModifiedXception(StackShape(3, hidden), "learned", width)


def test_widths_are_those_its_published_size_needs():
    pooler, widths = make_pooler(width=386).eval(), []
    maps = torch.randn(1, 1, 1, 386)
    for layer in pooler.net:
        maps = layer(maps)
        widths.append(maps.shape[-1])
    assert list(dict.fromkeys(widths)) == [78, 39, 20]  # SPEC 3.6
    assert pooler.features == 20 * 2048


def test_it_has_three_middle_blocks_and_an_exit_that_keeps_the_width():
    net = make_pooler().net
    shortcuts = [layer.shortcut for layer in net if hasattr(layer, "shortcut")]
    assert [isinstance(shortcut, nn.Identity) for shortcut in shortcuts] == [False, False, True, True, True, False]
    assert [shortcut[0].stride for shortcut in shortcuts if isinstance(shortcut, nn.Sequential)] == [2, 2, 1]


def test_batch_statistics_are_those_of_real_tokens_alone():
    pooler = make_pooler().train()
    pooler.view.down.weight.data.normal_()
    states, mask = torch.randn(2, 3, 4, 32), torch.tensor([[True] * 4, [True] + [False] * 3])
    pooler(states, mask, mask.long())
    seen = pooler.view(states, mask, mask.long())[mask].detach().numpy()  # [5 real tokens, 12]
    kernel = pooler.net[0].weight.detach().numpy()[:, 0, 0]  # [32, 3]
    windows = [seen[:, 0:3], seen[:, 5:8], seen[:, 10:12]]  # stride 5; the last reaches over the right edge
    maps = sum((window @ kernel[:, : window.shape[1]].T).sum(axis=0) for window in windows) / (5 * 3)
    torch.testing.assert_close(pooler.net[1].running_mean, torch.from_numpy(0.01 * maps), rtol=1e-3, atol=1e-6)


def test_dropout_can_be_left_out():
    assert make_pooler().dropout.p == 0.2
    assert isinstance(ModifiedXception(StackShape(3, 32), "learned", 12, dropout_rate=0.0).dropout, nn.Identity)
