"""The papers' "adapter, skip, Tenney pooling": one adapter on all layers and a second on their learned mix."""

from typing import Literal

import torch
from torch import nn

from bertvision.heads.poolers.adapter import Adapter
from bertvision.heads.poolers.mixed_adapter import MixedAdapter
from bertvision.heads.poolers.pooler import PoolerBase, Width
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask


class TwoAdaptersConfig(PoolerBase):
    """Size of both projections."""

    kind: Literal["two_adapters"] = "two_adapters"
    width: Width = 64


class TwoAdapters(nn.Module):
    """Lay the projection of every layer and the projection of their learned mix side by side.

    No code of this head is left; of the readings that its published size allows, this is the natural one.
    """

    def __init__(self, shape: StackShape, width: int) -> None:
        super().__init__()
        self.of_layers = Adapter(shape.layers, shape.hidden, width)
        self.of_mix = MixedAdapter(shape, "learned", width)
        self.features = self.of_layers.features + self.of_mix.features

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return width x (layers + 1) features."""
        seen = (states, mask, segments)
        return torch.cat([self.of_layers(*seen), self.of_mix(*seen)], dim=-1)
