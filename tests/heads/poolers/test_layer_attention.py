import numpy as np
import torch
from torch.nn import functional as F

from bertvision.heads.poolers.layer_attention import LayerAttention


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
