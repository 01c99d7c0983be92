import numpy as np
import torch
from torch.nn import functional as F

from bertvision.heads.poolers.depth import DepthReader, LayerAttention


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
