"""Average pooling: the mean of all layers (the papers' "AP"), or of the first and the last."""

from typing import Literal

from torch import nn

from bertvision.heads.poolers.pooler import PoolerBase
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
