import torch
from torch.nn import functional as F

from bertvision.heads.poolers.layers import project_layers

STATES = torch.randn(2, 3, 5, 8)


def test_layers_are_projected_where_they_lie_in_memory():
    linear = torch.nn.Linear(8, 3)
    expected = F.linear(STATES, linear.weight, linear.bias).transpose(0, 1)
    layer_first = torch.cat([STATES, STATES]).transpose(0, 1).contiguous().transpose(0, 1)[:2]
    torch.testing.assert_close(project_layers(STATES, linear), expected)
    torch.testing.assert_close(project_layers(layer_first, linear), expected)
