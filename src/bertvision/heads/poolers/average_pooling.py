"""Average pooling: the mean of all layers (the papers' "AP"), or of the first and the last."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bertvision.heads.poolers.pooler import LayerParts, OutputWeight, PoolerBase, parts_of_mix
from bertvision.shapes import LayerStates, Segments, TokenFeatures, TokenMask


class AveragePoolingConfig(PoolerBase):
    """Which layers are averaged."""

    kind: Literal["average_pooling"] = "average_pooling"
    layers: Literal["all", "first_and_last"] = "all"


class AveragePooling(nn.Module):
    """Average the layers; no weights of its own."""

    def __init__(self, hidden: int, *, first_and_last: bool = False) -> None:
        super().__init__()
        self.first_and_last = first_and_last
        self.features = hidden

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Average the layer axis away."""
        # The papers cite Ma et al., who average the first and last layer; the papers' code averages all.
        chosen = states[:, [0, -1]] if self.first_and_last else states
        return chosen.mean(dim=1)

    def mix(self, states: LayerStates) -> Float[Tensor, " layer"]:
        """Return the factor on each layer."""
        layers = states.shape[1]
        if not self.first_and_last:
            return torch.full((layers,), 1 / layers, device=states.device)
        mix = torch.zeros(layers, device=states.device)
        mix[0] += 0.5
        mix[-1] += 0.5
        return mix

    def layer_parts(self, states: LayerStates, mask: TokenMask, weight: OutputWeight) -> LayerParts:
        """Return what each layer adds."""
        return parts_of_mix(self.mix(states), states, weight)
