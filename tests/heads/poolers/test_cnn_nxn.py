import torch
from torch.nn import functional as F

from bertvision.heads.poolers.cnn import CnnNxN, NgramLayer, real_tokens
from bertvision.shapes import StackShape

MASK = torch.tensor([[True] * 6, [True] * 3 + [False] * 3])


def make_layer():
    torch.manual_seed(0)
    return NgramLayer(1, 3).train(), torch.randn(2, 1, 6, 8).masked_fill(~MASK[:, None, :, None], 0)


def test_the_network_ends_at_the_width_its_published_size_needs():
    pooler = CnnNxN(StackShape(25, 1024), "learned", 386)
    assert [layer.conv.weight.shape[2:] for layer in pooler.net] == [(5, 5), (5, 5), (3, 3), (3, 3)]
    assert pooler.features == 25 * 128 + 1024  # SPEC 3.6: 386 is halved to 193, 97, 49, 25


def test_a_token_sees_six_neighbours_on_either_side():
    pooler = CnnNxN(StackShape(2, 32), "learned", 12).eval()
    pooler.view.down.weight.data.normal_()
    states = torch.randn(1, 2, 21, 32, requires_grad=True)
    mask = torch.ones(1, 21).bool()
    pooler(states, mask, mask.long())[0, 10].sum().backward()
    seen = states.grad.abs().sum(dim=(0, 1, 3)).nonzero().flatten().tolist()
    assert seen == list(range(4, 17))  # kernels of 5, 5, 3 and 3 reach 2 + 2 + 1 + 1 further


def test_batch_statistics_are_those_of_real_tokens_alone():
    layer, maps = make_layer()
    found = layer(maps, real_tokens(MASK), MASK)
    # Width 8, kernel 3, stride 2: four windows, the last of which reaches one over the right edge.
    convolved = F.conv2d(F.pad(maps, (0, 1, 1, 1)), layer.conv.weight, stride=(1, 2)).detach()
    real = convolved.transpose(1, 2)[MASK]  # [9 real tokens, channel, 4]
    mean, variance = real.numpy().mean(axis=(0, 2)), real.numpy().var(axis=(0, 2))
    torch.testing.assert_close(layer.norm.running_mean, 0.01 * torch.from_numpy(mean), rtol=1e-3, atol=1e-6)
    normed = (real[8] - torch.from_numpy(mean)[:, None]) / (torch.from_numpy(variance)[:, None] + 1e-3).sqrt()
    torch.testing.assert_close(found[1, :, 2], normed.clamp(min=0), rtol=1e-4, atol=1e-5)


def test_padding_is_zero_for_the_next_convolution():
    layer, maps = make_layer()
    layer.norm.bias.data.fill_(1)
    found = layer(maps, real_tokens(MASK), MASK).transpose(1, 2)
    assert not found[~MASK].any()
    assert found[MASK].any()
