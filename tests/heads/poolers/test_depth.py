import numpy as np
import pytest
import torch
from torch.nn import functional as F

from bertvision.heads.poolers.depth import DepthReader, Ladder, LayerAttention, SideLayer


def test_layer_attention_weighs_a_tokens_layers_by_query_and_key(shape, seen, randomised, numpy_of):
    pooler = randomised(LayerAttention(shape, 4))
    given, features = numpy_of(pooler), pooler(*seen)
    query = given["query.weight"] @ seen[0][1, 2, 3].numpy() + given["query.bias"]
    vectors = [
        given["keys_values.weight"] @ seen[0][1, layer, 3].numpy() + given["layer_vectors"][layer] for layer in range(3)
    ]
    weights = np.exp([query @ vector[:4] / np.sqrt(4) for vector in vectors])
    summed = sum(weight * vector[4:] for weight, vector in zip(weights / weights.sum(), vectors, strict=True))
    expected = F.gelu(torch.from_numpy(summed), approximate="tanh").float()
    torch.testing.assert_close(features[1, 3, :4], expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(features[..., 4:], seen[0][:, -1])


def test_layer_attention_starts_small_beside_the_last_state(shape, seen):
    torch.manual_seed(0)
    assert LayerAttention(shape, 4)(*seen)[..., :4].abs().max() < 0.05


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def test_read_runs_a_gru_from_the_lowest_layer_to_the_highest(shape, seen, randomised, numpy_of):
    pooler = randomised(DepthReader(shape, 4))
    given, features, hidden = numpy_of(pooler), pooler(*seen), np.zeros(4)
    for layer in range(3):
        tap = given["down.weight"] @ seen[0][1, layer, 3].numpy() + given["down.bias"]
        of_tap = np.split(given["gru.weight_ih_l0"] @ tap + given["gru.bias_ih_l0"], 3)
        of_hidden = np.split(given["gru.weight_hh_l0"] @ hidden + given["gru.bias_hh_l0"], 3)
        reset, update = sigmoid(of_tap[0] + of_hidden[0]), sigmoid(of_tap[1] + of_hidden[1])
        hidden = (1 - update) * np.tanh(of_tap[2] + reset * of_hidden[2]) + update * hidden
    np.testing.assert_allclose(features[1, 3, :4].detach().numpy(), hidden, atol=1e-5)
    torch.testing.assert_close(features[..., 4:], seen[0][:, -1])


def make_input():
    torch.manual_seed(0)
    mask = torch.arange(5) < torch.tensor([[5], [3]])
    return torch.randn(2, 3, 5, 8), mask, torch.zeros(2, 5).long()


def still(ladder):
    """Let every layer pass its input on."""
    for layer in ladder.layers:
        for last in (layer.attention_out, layer.mlp_out):
            last.weight.data.zero_()
            last.bias.data.zero_()
    return ladder


def test_a_ladder_of_still_layers_is_a_gated_sum_of_projected_states(shape):
    ladder, (states, mask, segments) = still(Ladder(shape, 6)), make_input()
    ladder.gates.data = 0.1 * torch.tensor([np.log(3.0), np.log(1 / 4)]).float()  # sigmoids of 3/4 and 1/5
    taps = states @ ladder.down.weight.T + ladder.down.bias
    expected = 0.8 * (0.25 * taps[:, 0] + 0.75 * taps[:, 1]) + 0.2 * taps[:, 2]
    features = ladder(states, mask, segments)
    torch.testing.assert_close(features[..., :6], expected)
    torch.testing.assert_close(features[..., 6:], states[:, -1])


def test_a_ladder_starts_near_passing_its_taps_on_half_and_half(shape):
    torch.manual_seed(0)
    ladder, seen = Ladder(shape, 6), make_input()
    start = ladder(*seen)
    torch.testing.assert_close(start, still(ladder)(*seen), atol=0.02, rtol=0)


def norm(values):
    return (values - values.mean(-1, keepdims=True)) / np.sqrt(values.var(-1, keepdims=True) + 1e-5)


def gelu(values):
    return torch.nn.functional.gelu(torch.from_numpy(values)).numpy()


@pytest.mark.parametrize(("width", "heads", "size"), [(6, 1, 6), (37, 2, 18), (48, 3, 16)])
def test_a_side_layer_is_a_transformer_layer_on_the_real_tokens(width, heads, size):
    torch.manual_seed(0)
    layer = SideLayer(width).double()
    for parameter in layer.parameters():
        parameter.data.normal_(std=0.3)
    layer.norm_attention.reset_parameters()
    layer.norm_mlp.reset_parameters()
    side = torch.randn(1, 7, width).double()
    given = {name: parameter.detach().numpy() for name, parameter in layer.named_parameters()}
    (real,) = side[:, :4].numpy()
    queries, keys, values = (
        (norm(real) @ given["attention_in.weight"].T).reshape(4, 3, heads, size).transpose(1, 2, 0, 3)
    )
    weights = np.exp(queries @ keys.transpose(0, 2, 1) / np.sqrt(size))
    seen = weights / weights.sum(axis=-1, keepdims=True) @ values  # [head, token, size]
    seen = seen.transpose(1, 0, 2).reshape(4, -1)
    real = real + seen @ given["attention_out.weight"].T + given["attention_out.bias"]
    inner = gelu(norm(real) @ given["mlp_in.weight"].T + given["mlp_in.bias"])
    expected = real + inner @ given["mlp_out.weight"].T + given["mlp_out.bias"]
    found = layer(side, (torch.arange(7) < 4)[None])[0, :4]
    np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-9)
