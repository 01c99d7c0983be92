"""Mix first, project after: the papers' LP -> adapter, and the same on the mean or on the last state alone."""

from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from bertvision.heads.poolers.adapter import start_small
from bertvision.heads.poolers.average_pooling import AveragePooling
from bertvision.heads.poolers.last_state import LastState
from bertvision.heads.poolers.learned_pooling import LearnedPooling
from bertvision.heads.poolers.pooler import PoolerBase, Width
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask

Mix = Literal["learned", "average", "last"]


class MixedAdapterConfig(PoolerBase):
    """What is projected, and how far down."""

    kind: Literal["mixed_adapter"] = "mixed_adapter"
    mix: Mix = "learned"
    width: Width = 64
    skip: bool = False


class MixedAdapter(nn.Module):
    """Mix the layers into one state, project it down, apply GELU; the last state may join it unprojected."""

    def __init__(self, shape: StackShape, mix: Mix, width: int, *, skip: bool = False) -> None:
        super().__init__()
        self.mix = build_mix(mix, shape)
        self.down = nn.Linear(shape.hidden, width)
        start_small(self.down.weight, self.down.bias)
        self.skip = skip
        self.features = width + (shape.hidden if skip else 0)

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return width features (and the last state)."""
        projected = F.gelu(self.down(self.mix(states, mask, segments)), approximate="tanh")
        return torch.cat([projected, states[:, -1]], dim=-1) if self.skip else projected


def build_mix(mix: Mix, shape: StackShape) -> nn.Module:
    """Build a pooler that gives one state of the encoder's width per token."""
    match mix:
        case "learned":
            return LearnedPooling(shape.layers, shape.hidden)
        case "average":
            return AveragePooling(shape.hidden)
        case "last":
            return LastState(shape.hidden)
