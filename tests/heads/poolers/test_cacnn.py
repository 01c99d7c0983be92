import numpy as np
import pytest
import torch
from torch.nn import functional as F

from bertvision.heads.build import build_head
from bertvision.heads.config import HeadConfig
from bertvision.heads.poolers.cacnn import ContextGenerator, SimpleGenerator, build_cacnn, correlate, window_weights
from bertvision.heads.poolers.config import CacnnContextConfig, CacnnSimpleConfig
from bertvision.shapes import StackShape

SHAPE = StackShape(layers=3, hidden=4)


def make_rows(tokens, lengths, hidden=4):
    torch.manual_seed(0)
    return torch.randn(len(lengths), tokens, hidden), torch.arange(tokens) < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("length", [1, 2, 5, 6])
def test_a_filter_runs_over_its_own_row_as_a_loop_does(length):
    torch.manual_seed(0)
    rows, filters = torch.randn(2, 7, 3), torch.randn(2, length, 4, 3)
    expected = np.zeros((2, 7, 4))
    for row, token, each, place in np.ndindex(2, 7, 4, length):
        seen = token + place - (length - 1) // 2
        if 0 <= seen < 7:
            expected[row, token, each] += float(rows[row, seen] @ filters[row, place, each])
    np.testing.assert_allclose(correlate(rows, filters).numpy(), expected, atol=1e-5)


def test_a_filter_runs_over_its_own_row_as_a_convolution_with_a_group_per_row_does():
    torch.manual_seed(0)
    rows, filters = torch.randn(3, 9, 8), torch.randn(3, 6, 4, 8)
    padded = F.pad(rows.transpose(1, 2), (2, 3)).reshape(1, 3 * 8, -1)
    expected = F.conv1d(padded, filters.permute(0, 2, 3, 1).reshape(3 * 4, 8, 6), groups=3)
    torch.testing.assert_close(correlate(rows, filters), expected.view(3, 4, 9).transpose(1, 2))


def test_windows_lie_half_over_each_other_and_cover_the_real_tokens():
    weights = window_weights(torch.arange(12) < torch.tensor([[8], [12], [1]]), 3)
    quarter, sixth = [0.25] * 4, [1 / 6] * 6
    expected = [
        [quarter + [0] * 8, [0, 0, *quarter] + [0] * 6, [0] * 4 + quarter + [0] * 4],  # 8 / (3 + 1) = steps of 2
        [sixth + [0] * 6, [0] * 3 + sixth + [0] * 3, [0] * 6 + sixth],
        [[1] + [0] * 11] * 3,  # one token is all there is
    ]
    np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-6)


def test_windows_of_the_papers_row_are_nearly_the_papers():
    (weights,) = window_weights(torch.ones(1, 384).bool(), 6)
    begins, lengths = (weights > 0).int().argmax(dim=1), (weights > 0).sum(dim=1)
    # Windows of 100 every 50 leave the last 34 of 384 tokens out; 384 / 7 = 54.9 reach them.
    assert begins.tolist() == [0, 54, 109, 164, 219, 274]
    assert lengths.min() >= 110
    assert lengths.max() <= 111


def test_the_simple_generator_has_the_published_number_of_parameters():
    with torch.device("meta"):
        generator = SimpleGenerator(768, filters=4, length=6)
    counts = {name: parameter.numel() for name, parameter in generator.named_parameters()}
    assert counts["conv.weight"] + counts["conv.bias"] == 11_799_552  # SPEC 11.4
    assert counts["bias"] == 3_072


def test_the_simple_generator_takes_the_maximum_of_eight_and_averages_windows():
    rows, mask = make_rows(11, [11, 6])
    generator = SimpleGenerator(4, filters=2, length=3).eval()
    filters = generator(rows, mask)
    assert filters.shape == (2, 3, 2, 4)
    weight, bias, extra = (
        each.detach().numpy() for each in (generator.conv.weight, generator.conv.bias, generator.bias)
    )
    for row, count in ((0, 11), (1, 6)):
        seen = np.pad(rows[row, :count].numpy(), ((2, 2), (0, 0)))
        conv = np.array([np.einsum("kc,ock->o", seen[token : token + 5], weight) + bias for token in range(count)])
        maxed = np.array([np.maximum(conv, 0)[max(0, t - 3) : t + 5].max(axis=0) for t in range(count)]) + extra
        for window in range(3):
            begin, end = int(window * count / 4), int(np.ceil((window + 2) * count / 4))
            expected = maxed[begin:end].mean(axis=0).reshape(2, 4)  # channel filter * hidden + c
            np.testing.assert_allclose(filters[row, window].detach().numpy(), expected, atol=1e-5)


def test_the_context_generator_makes_filters_of_each_channels_maximum():
    rows, mask = make_rows(9, [9, 5])
    generator = ContextGenerator(4, filters=2, length=3, channels=6)
    real = rows[1:, :5].transpose(1, 2)
    vector = torch.cat([F.relu(conv(real)).amax(dim=2) for conv in generator.convs], dim=1)
    expected = generator.generate(vector)[0]
    filters = generator(rows, mask)[1]
    assert filters.shape == (3, 2, 6)
    torch.testing.assert_close(filters.flatten(), expected)


@pytest.mark.parametrize("config", [CacnnSimpleConfig(), CacnnContextConfig()])
def test_the_question_is_not_searched_but_makes_the_filters(config):
    torch.manual_seed(0)
    pooler = build_cacnn(config, SHAPE).eval()
    states, mask = torch.randn(1, 3, 40, 4), torch.ones(1, 40).bool()
    segments = (torch.arange(40) >= 20).long()[None]
    features = pooler(states, mask, segments)
    assert not features[0, :10].any()  # no context in reach
    asked = states.clone()
    asked[:, :, :10] += 5.0
    assert not torch.allclose(pooler(asked, mask, segments)[0, 25:], features[0, 25:])


@pytest.mark.parametrize("filters", [4, 8, 16, 32])
@pytest.mark.parametrize("name", ["cacnn_simple", "cacnn_context_lp"])
def test_the_number_of_filters_is_an_option(name, filters):
    pooler = {**HeadConfig.model_validate(name).pooler.model_dump(), "filters": filters}
    head = build_head(HeadConfig.model_validate({"name": "x", "pooler": pooler}), SHAPE)
    assert head.readout.linear.in_features == filters
    rows, mask = make_rows(5, [5, 3])
    assert head(rows[:, None].expand(-1, 3, -1, -1), mask, mask.long()).shape == (2, 5, 2)
