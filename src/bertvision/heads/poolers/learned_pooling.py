"""Learned pooling: one softmax weight per layer (Tenney's scalar mix, the papers' "LP")."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bertvision.heads.poolers.pooler import LayerParts, OutputWeight, PoolerBase, parts_of_mix
from bertvision.shapes import LayerStates, Segments, TokenFeatures, TokenMask


class LearnedPoolingConfig(PoolerBase):
    """Nothing to choose."""

    kind: Literal["learned_pooling"] = "learned_pooling"


class LearnedPooling(nn.Module):
    """Weigh the layers by a learned softmax, shared by all tokens, and scale their sum."""

    def __init__(self, layers: int, hidden: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(layers) * 0.05)  # the original's start: Keras' random_normal
        self.scale = nn.Parameter(torch.ones(()))
        self.features = hidden

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Mix the layer axis away."""
        return self.scale * torch.einsum("l,blth->bth", self.weights.softmax(dim=0), states)

    def mix(self, states: LayerStates) -> Float[Tensor, " layer"]:
        """Return the factor on each layer."""
        return self.scale * self.weights.softmax(dim=0)

    def layer_parts(self, states: LayerStates, mask: TokenMask, weight: OutputWeight) -> LayerParts:
        """Return what each layer adds."""
        return parts_of_mix(self.mix(states), states, weight)

    def layer_weights(self) -> Tensor:
        """Return each layer's share."""
        return self.weights.detach().softmax(dim=0)
