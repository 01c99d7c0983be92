import numpy as np
import torch

from bertvision.heads.poolers.read import Read


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def test_read_runs_a_gru_from_the_lowest_layer_to_the_highest(shape, seen, randomised, numpy_of):
    pooler = randomised(Read(shape, 4))
    given, features, hidden = numpy_of(pooler), pooler(*seen), np.zeros(4)
    for layer in range(3):
        tap = given["down.weight"] @ seen[0][1, layer, 3].numpy() + given["down.bias"]
        of_tap = np.split(given["gru.weight_ih_l0"] @ tap + given["gru.bias_ih_l0"], 3)
        of_hidden = np.split(given["gru.weight_hh_l0"] @ hidden + given["gru.bias_hh_l0"], 3)
        reset, update = sigmoid(of_tap[0] + of_hidden[0]), sigmoid(of_tap[1] + of_hidden[1])
        hidden = (1 - update) * np.tanh(of_tap[2] + reset * of_hidden[2]) + update * hidden
    np.testing.assert_allclose(features[1, 3, :4].detach().numpy(), hidden, atol=1e-5)
    torch.testing.assert_close(features[..., 4:], seen[0][:, -1])
