import numpy as np
import pytest
import torch

from bertvision.heads.poolers.ladder import Ladder, SideLayer
from bertvision.shapes import StackShape

SHAPE = StackShape(layers=3, hidden=8)


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


def test_a_ladder_of_still_layers_is_a_gated_sum_of_projected_states():
    ladder, (states, mask, segments) = still(Ladder(SHAPE, 6)), make_input()
    ladder.gates.data = 0.1 * torch.tensor([np.log(3.0), np.log(1 / 4)]).float()  # sigmoids of 3/4 and 1/5
    taps = states @ ladder.down.weight.T + ladder.down.bias
    expected = 0.8 * (0.25 * taps[:, 0] + 0.75 * taps[:, 1]) + 0.2 * taps[:, 2]
    features = ladder(states, mask, segments)
    torch.testing.assert_close(features[..., :6], expected)
    torch.testing.assert_close(features[..., 6:], states[:, -1])


def test_a_ladder_starts_near_passing_its_taps_on_half_and_half():
    torch.manual_seed(0)
    ladder, seen = Ladder(SHAPE, 6), make_input()
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
