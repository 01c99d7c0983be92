"""Adapter pooling: every layer projected down by a small layer, all of them kept side by side."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.heads.poolers.pooler import LayerParts, OutputWeight, PoolerBase, Width
from bertvision.shapes import LayerStates, Segments, TokenFeatures, TokenMask

Gelu = Literal["tanh", "none"]  # torch's names: the 2020 code's approximation, and the exact one of 2021


class AdapterConfig(PoolerBase):
    """Size of the projection and whether the layers share it."""

    kind: Literal["adapter"] = "adapter"
    width: Width = 64
    shared: bool = True  # false: a projection of its own for every layer
    skip: bool = False  # put the last layer's state beside the projections
    gelu: Gelu = "tanh"


class Adapter(nn.Module):
    """Project each layer down, apply GELU, and lay the layers side by side; the last state may join them unprojected.

    There is no up-projection, residual, norm or dropout: this is the papers' head, not Houlsby's adapter.
    """

    def __init__(
        self, layers: int, hidden: int, width: int, *, shared: bool = True, skip: bool = False, gelu: Gelu = "tanh"
    ) -> None:
        super().__init__()
        self.down = nn.Linear(hidden, width) if shared else LinearByLayer(layers, hidden, width)
        start_small(self.down.weight, self.down.bias)
        self.width, self.shared, self.skip, self.gelu = width, shared, skip, gelu
        self.features = layers * width + (hidden if skip else 0)

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return width x layers features (and the last state); within a projected feature the layers are neighbours."""
        features = self._projected(states).permute(0, 2, 3, 1).flatten(start_dim=2)  # [batch, token, width * layer]
        return torch.cat([features, states[:, -1]], dim=-1) if self.skip else features

    def layer_parts(self, states: LayerStates, mask: TokenMask, weight: OutputWeight) -> LayerParts:
        """Read every layer's projection out by the weights that are its own, and the last state by the rest."""
        layers = states.shape[1]
        projected = layers * self.width
        readout = weight[:, :projected].view(-1, self.width, layers)
        parts = torch.einsum("bltw,cwl->bltc", self._projected(states), readout)
        return LayerParts(parts, states[:, -1] @ weight[:, projected:].T if self.skip else None)

    def _projected(self, states: LayerStates) -> Tensor:
        if not self.shared:
            return F.gelu(self.down(states), approximate=self.gelu)
        # In memory the layer comes first: read so, states are not copied, which is a third of a head's time on a CPU.
        return F.gelu(self.down(states.transpose(0, 1)), approximate=self.gelu).transpose(0, 1)


class LinearByLayer(nn.Module):
    """A linear layer of its own for every layer of the states."""

    def __init__(self, layers: int, hidden: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(layers, width, hidden))
        self.bias = nn.Parameter(torch.empty(layers, width))

    def forward(self, states: LayerStates) -> Tensor:
        """Project every layer by its own weights."""
        return torch.einsum("blth,lwh->bltw", states, self.weight) + self.bias[:, None]


def start_small(weight: Tensor, bias: Tensor) -> None:
    """Start a projection as the original did; truncated at two standard deviations, as in Keras."""
    nn.init.trunc_normal_(weight, std=1e-3, a=-2e-3, b=2e-3)
    nn.init.zeros_(bias)
