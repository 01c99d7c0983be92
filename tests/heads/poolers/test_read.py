import numpy as np
import torch

from bertvision.heads.poolers.read import Read
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


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def test_read_runs_a_gru_from_the_lowest_layer_to_the_highest():
    pooler = randomised(Read(SHAPE, 4))
    given, features, hidden = numpy_of(pooler), pooler(*SEEN), np.zeros(4)
    for layer in range(3):
        tap = given["down.weight"] @ STATES[1, layer, 3].numpy() + given["down.bias"]
        of_tap = np.split(given["gru.weight_ih_l0"] @ tap + given["gru.bias_ih_l0"], 3)
        of_hidden = np.split(given["gru.weight_hh_l0"] @ hidden + given["gru.bias_hh_l0"], 3)
        reset, update = sigmoid(of_tap[0] + of_hidden[0]), sigmoid(of_tap[1] + of_hidden[1])
        hidden = (1 - update) * np.tanh(of_tap[2] + reset * of_hidden[2]) + update * hidden
    np.testing.assert_allclose(features[1, 3, :4].detach().numpy(), hidden, atol=1e-5)
    torch.testing.assert_close(features[..., 4:], STATES[:, -1])
