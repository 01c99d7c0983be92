"""A small recurrent network that reads a token's states from the lowest layer to the highest."""

from typing import Literal

import torch
from torch import nn

from bertvision.heads.poolers.pooler import PoolerBase, Width, project_layers
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask


class ReadConfig(PoolerBase):
    """Width of the projection and of the recurrent state."""

    kind: Literal["read"] = "read"
    width: Width = 64


class Read(nn.Module):
    """Project every state down and run a GRU over depth, token by token; its last state and the encoder's remain."""

    def __init__(self, shape: StackShape, width: int) -> None:
        super().__init__()
        self.down = nn.Linear(shape.hidden, width)
        self.gru = nn.GRU(width, width)
        self.features = width + shape.hidden

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return width features and the last state."""
        batch, _, tokens, _ = states.shape
        projected = project_layers(states, self.down).flatten(1, 2)
        # Autocast would run cuDNN's GRU in float16, also where it was asked for bf16: small gradients would be lost.
        with torch.autocast(states.device.type, enabled=False):
            _, read = self.gru(projected.float())
        return torch.cat([read[0].unflatten(0, (batch, tokens)), states[:, -1]], dim=-1)
