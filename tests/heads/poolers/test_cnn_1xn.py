import numpy as np
import pytest
import torch
from torch import nn

from bertvision.errors import SettingsError
from bertvision.heads.poolers.cnn import Cnn1xN, MaxPool
from bertvision.shapes import StackShape

SHAPE = StackShape(layers=3, hidden=32)
MASK = torch.tensor([[True] * 5, [True] * 2 + [False] * 3])
SEGMENTS = torch.zeros(2, 5).long()


def make_states():
    torch.manual_seed(0)
    return torch.randn(2, 3, 5, 32).masked_fill(~MASK[:, None, :, None], 40.0)


def last_width(pooler, inputs):
    with torch.device("meta"):
        return pooler.to("meta").net(torch.empty(2, *inputs)).shape[-1]


@pytest.mark.parametrize(
    ("mix", "adapter", "inputs", "width"),
    [(None, None, (25, 1, 1024), 86), ("average", None, (1, 1, 1024), 86), ("learned", 386, (1, 1, 386), 33)],
)
@pytest.mark.parametrize("dilated", [False, True])
def test_the_network_ends_at_the_width_its_published_size_needs(mix, adapter, inputs, width, dilated):
    pooler = Cnn1xN(StackShape(25, 1024), mix, adapter, dilated=dilated)  # SPEC 3.6
    assert last_width(pooler, inputs) == width
    assert pooler.features == width * 128 + 1024


def test_layers_are_the_channels_of_the_first_convolution():
    pooler = Cnn1xN(SHAPE, None, None).eval()
    order, states = [2, 0, 1], make_states()
    found = pooler(states, MASK, SEGMENTS)[..., : -SHAPE.hidden]
    pooler.net[0].weight.data = pooler.net[0].weight.data[:, order]
    torch.testing.assert_close(pooler(states[:, order], MASK, SEGMENTS)[..., : -SHAPE.hidden], found)
    assert pooler.net[0].weight.shape == (64, 3, 1, 11)


def test_a_token_is_read_for_itself():
    pooler, states = Cnn1xN(SHAPE, None, None).eval(), make_states()
    changed = states.clone()
    changed[0, :, 2] = 1.0
    differs = (pooler(states, MASK, SEGMENTS) != pooler(changed, MASK, SEGMENTS)).any(dim=-1)
    assert differs.nonzero().tolist() == [[0, 2]]


def test_the_last_state_stands_beside_what_is_found():
    states = make_states()
    torch.testing.assert_close(Cnn1xN(SHAPE, "learned", 12)(states, MASK, SEGMENTS)[..., -32:], states[:, -1])


def test_batch_statistics_are_those_of_real_tokens_alone():
    pooler, states = Cnn1xN(SHAPE, None, None).train(), make_states()
    pooler(states, MASK, SEGMENTS)
    real = states.transpose(1, 2)[MASK].numpy()  # [7, 3, 32]
    padded = np.pad(real, [(0, 0), (0, 0), (4, 5)])  # a kernel of 11 and a stride of 2 on 32: 16 windows, 9 padded
    windows = np.stack([padded[..., start : start + 11] for start in range(0, 32, 2)], axis=2)
    maps = np.einsum("nlwk,clk->ncw", windows, pooler.net[0].weight.detach().numpy()[:, :, 0])
    np.testing.assert_allclose(pooler.net[1].running_mean.numpy(), 0.01 * maps.mean(axis=(0, 2)), rtol=1e-3, atol=1e-6)
    variance = 0.99 + 0.01 * maps.var(axis=(0, 2), ddof=1)
    np.testing.assert_allclose(pooler.net[1].running_var.numpy(), variance, rtol=1e-4)


@pytest.mark.parametrize(("rate", "share"), [(0.2, 0.2), (0.0, 0.0)])
def test_dropout_takes_its_share_of_what_is_found_and_none_of_the_last_state(rate, share):
    pooler = Cnn1xN(SHAPE, None, None, dropout_rate=rate).train()
    pooler.net = nn.Identity()  # the share is seen best where nothing else makes zeros
    found = pooler(torch.ones(2, 3, 400, 32), torch.ones(2, 400).bool(), torch.zeros(2, 400).long())
    assert (found[..., :-32] == 0).float().mean().item() == pytest.approx(share, abs=0.01)
    assert (found[..., -32:] == 1).all()


def test_the_dilated_network_steps_further_and_leaves_its_strides_to_pools():
    net = Cnn1xN(SHAPE, None, None, dilated=True).net
    convs = [layer for layer in net if hasattr(layer, "dilation")]
    assert [(conv.dilation, conv.stride) for conv in convs] == [(1, 1), (2, 1), (4, 1), (8, 1)]
    assert [layer.stride for layer in net if isinstance(layer, MaxPool)] == [2, 2, 3]


def test_an_adapter_without_a_mix_is_refused():
    with pytest.raises(SettingsError, match="give the pooler a `mix`"):
        Cnn1xN(SHAPE, None, 12)
