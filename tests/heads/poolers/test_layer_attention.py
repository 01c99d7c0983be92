import numpy as np
import torch
from torch.nn import functional as F

from bertvision.heads.poolers.layer_attention import LayerAttention
from bertvision.shapes import StackShape

SHAPE = StackShape(layers=3, hidden=8)
torch.manual_seed(0)
STATES = torch.randn(2, 3, 5, 8)
SEEN = (STATES, torch.ones(2, 5).bool(), torch.zeros(2, 5).long())


def randomised(pooler):
    torch.manual_seed(1)
    for parameter in pooler.parameters():
        parameter.data.normal_(std=0.5)
    return pooler


def numpy_of(module):
    return {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}


def test_layer_attention_weighs_a_tokens_layers_by_query_and_key():
    pooler = randomised(LayerAttention(SHAPE, 4))
    given, features = numpy_of(pooler), pooler(*SEEN)
    query = given["query.weight"] @ STATES[1, 2, 3].numpy() + given["query.bias"]
    vectors = [
        given["keys_values.weight"] @ STATES[1, layer, 3].numpy() + given["layer_vectors"][layer] for layer in range(3)
    ]
    weights = np.exp([query @ vector[:4] / np.sqrt(4) for vector in vectors])
    summed = sum(weight * vector[4:] for weight, vector in zip(weights / weights.sum(), vectors, strict=True))
    expected = F.gelu(torch.from_numpy(summed), approximate="tanh").float()
    torch.testing.assert_close(features[1, 3, :4], expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(features[..., 4:], STATES[:, -1])


def test_layer_attention_starts_small_beside_the_last_state():
    torch.manual_seed(0)
    assert LayerAttention(SHAPE, 4)(*SEEN)[..., :4].abs().max() < 0.05
