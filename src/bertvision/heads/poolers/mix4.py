"""Four learned mixes of the layers, each projected by its own small layer."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.heads.poolers.adapter import LinearByLayer, start_small
from bertvision.heads.poolers.pooler import PoolerBase, Width
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask

MIXES = 4


class Mix4Config(PoolerBase):
    """Size of each mix's projection."""

    kind: Literal["mix4"] = "mix4"
    width: Width = 64


class Mix4(nn.Module):
    """Mix the layers four times, project each mix down, apply GELU; the last state joins them unprojected."""

    def __init__(self, shape: StackShape, width: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(_spread_weights(shape.layers))
        self.down = LinearByLayer(MIXES, shape.hidden, width)
        start_small(self.down.weight, self.down.bias)
        self.features = MIXES * width + shape.hidden

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return width x 4 features, mix after mix, and the last state."""
        shares = self.weights.softmax(dim=1).to(states.dtype).expand(len(states), -1, -1)
        mixes = shares.bmm(states.flatten(start_dim=2))  # no copy of the states
        projected = F.gelu(self.down(mixes.view(len(states), MIXES, *states.shape[2:])), approximate="tanh")
        return torch.cat([projected.transpose(1, 2).flatten(start_dim=2), states[:, -1]], dim=-1)


def _spread_weights(layers: int) -> Tensor:
    """Start each mix at a depth of its own, from the lowest quarter to the highest, with e^4 between the ends at most.

    Four mixes that start alike would see the same for long.
    """
    depths = (torch.arange(layers) + 0.5) / layers
    centres = (torch.arange(MIXES) + 0.5) / MIXES
    return -4 * (depths - centres[:, None]).abs()
