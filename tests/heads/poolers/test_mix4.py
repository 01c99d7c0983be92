import numpy as np
import torch
from torch.nn import functional as F

from bertvision.heads.poolers.mix4 import Mix4
from bertvision.shapes import StackShape


def test_mix4_projects_each_mix_by_its_own_weights(shape, seen, randomised, numpy_of):
    pooler = randomised(Mix4(shape, 2))
    given, features = numpy_of(pooler), pooler(*seen)
    shares = np.exp(given["weights"]) / np.exp(given["weights"]).sum(axis=1, keepdims=True)
    for mix in range(4):
        state = sum(shares[mix, layer] * seen[0][1, layer, 3].numpy() for layer in range(3))
        before = given["down.weight"][mix] @ state + given["down.bias"][mix]
        expected = F.gelu(torch.from_numpy(before), approximate="tanh")
        torch.testing.assert_close(features[1, 3, 2 * mix : 2 * mix + 2], expected)
    torch.testing.assert_close(features[..., 8:], seen[0][:, -1])


def test_the_mixes_of_mix4_start_at_four_depths():
    shares = Mix4(StackShape(25, 8), 2).weights.softmax(dim=1)
    assert shares.argmax(dim=1).tolist() == [3, 9, 15, 21]  # the middles of the quarters of 25: 3.125 - 0.5 and so on
    assert shares.max() < 0.12  # a broad view
