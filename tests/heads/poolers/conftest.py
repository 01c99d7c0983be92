"""What the tests of single poolers share: states to look at, and weights that are not at their start."""

import pytest
import torch

from bertvision.shapes import StackShape


@pytest.fixture
def shape():
    return StackShape(layers=3, hidden=8)


@pytest.fixture
def seen(shape):
    """States, mask and segments of two rows of five tokens."""
    torch.manual_seed(0)
    return torch.randn(2, shape.layers, 5, shape.hidden), torch.ones(2, 5).bool(), torch.zeros(2, 5).long()


@pytest.fixture
def randomised():
    """Return a pooler weights that all matter; gives a function of the pooler."""

    def randomise(pooler):
        torch.manual_seed(1)
        for parameter in pooler.parameters():
            parameter.data.normal_(std=0.5)
        return pooler

    return randomise


@pytest.fixture
def numpy_of():
    """Read a pooler's weights by name; gives a function of the pooler."""
    return lambda module: {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}
