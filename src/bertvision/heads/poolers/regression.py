"""What a regression reads: all layers side by side, or the last one; `heads/regression.py` fits its readout."""

from typing import ClassVar, Literal

from torch import nn

from bertvision.heads.poolers.pooler import LayerParts, OutputWeight, PoolerBase
from bertvision.kinds.kind import Per
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask


class RegressionConfig(PoolerBase):
    """Which layers; a head with it is fitted at once, and takes no steps."""

    kind: Literal["regression"] = "regression"
    per: ClassVar[tuple[Per, ...]] = ("row",)
    layers: Literal["all", "last"] = "all"


class SideBySide(nn.Module):
    """Lay layers side by side; no weights of its own."""

    def __init__(self, shape: StackShape, *, last: bool) -> None:
        super().__init__()
        self.layers = 1 if last else shape.layers
        self.features = self.layers * shape.hidden

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return the layers' states, one after the other."""
        return states[:, -self.layers :].transpose(1, 2).flatten(start_dim=2)

    def layer_parts(self, states: LayerStates, mask: TokenMask, weight: OutputWeight) -> LayerParts:
        """Read every layer out by its own part of the weights."""
        batch, layers, tokens, hidden = states.shape
        parts = states.new_zeros(batch, layers, tokens, len(weight))
        for place, own in enumerate(weight.view(len(weight), -1, hidden).unbind(dim=1), start=layers - self.layers):
            parts[:, place] = states[:, place] @ own.T
        return LayerParts(parts)
