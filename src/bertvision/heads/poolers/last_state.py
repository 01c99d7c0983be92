"""The last layer's state alone: the encoder's own output layer reads it, and so do the controls."""

from typing import Literal

from torch import nn

from bertvision.heads.poolers.pooler import LayerParts, OutputWeight, PoolerBase
from bertvision.shapes import LayerStates, Segments, TokenFeatures, TokenMask


class LastStateConfig(PoolerBase):
    """Nothing to choose."""

    kind: Literal["last_state"] = "last_state"


class LastState(nn.Module):
    """Pass the last layer on; no weights of its own."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.features = hidden

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return the last state."""
        return states[:, -1]

    def layer_parts(self, states: LayerStates, mask: TokenMask, weight: OutputWeight) -> LayerParts:
        """Attribute the whole logit to the last layer."""
        batch, layers, tokens, _ = states.shape
        parts = states.new_zeros(batch, layers, tokens, len(weight))
        parts[:, -1] = states[:, -1] @ weight.T
        return LayerParts(parts)
