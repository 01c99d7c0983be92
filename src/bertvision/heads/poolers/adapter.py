"""Adapter pooling: layers projected down by small layers.

Every layer by itself, all of them kept side by side; a mix of them (the papers' LP -> adapter); or both.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.heads.poolers.mixes import Mix, build_mix
from bertvision.heads.poolers.pooler import LayerParts, OutputWeight, PoolerBase, Width
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask

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


class MixedAdapterConfig(PoolerBase):
    """The papers' LP -> adapter, and the same on the mean or on the last state alone: what is projected, how far."""

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


class TwoAdaptersConfig(PoolerBase):
    """The papers' "adapter, skip, Tenney pooling": size of both projections."""

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
