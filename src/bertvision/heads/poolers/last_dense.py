"""A dense layer on the last state: what transformers' classification heads put before their output layer."""

from typing import Literal

from torch import nn

from bertvision.heads.poolers.pooler import PoolerBase
from bertvision.shapes import LayerStates, Segments, TokenFeatures, TokenMask

Activation = Literal["tanh", "relu", "gelu"]
Norm = Literal["weight", "weight and bias"]
ACTIVATIONS: dict[Activation, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}


class LastDenseConfig(PoolerBase):
    """Which activation follows the layer, and whether a norm follows that (ModernBERT)."""

    kind: Literal["last_dense"] = "last_dense"
    activation: Activation = "tanh"
    bias: bool = True
    norm: Norm | None = None
    norm_eps: float = 1e-5


class LastDense(nn.Module):
    """Pass the last layer through a dense layer as wide as itself."""

    def __init__(self, hidden: int, activation: Activation, *, bias: bool, norm: Norm | None, norm_eps: float) -> None:
        super().__init__()
        self.features = hidden
        self.dense = nn.Linear(hidden, hidden, bias=bias)
        self.activation = ACTIVATIONS[activation]()
        self.norm = nn.LayerNorm(hidden, norm_eps, bias=norm == "weight and bias") if norm else nn.Identity()

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return the features of the last state."""
        features: TokenFeatures = self.norm(self.activation(self.dense(states[:, -1])))
        return features
