"""Adapter pooling: every layer projected down by the same small layer, all of them kept side by side."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from bertvision.settings import Config
from bertvision.shapes import LayerStates, Segments, TokenFeatures, TokenMask

Width = Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)]


class AdapterConfig(Config):
    """Size of the projection shared by all layers."""

    kind: Literal["adapter"] = "adapter"
    width: Width = 64  # a number, or a share of the hidden size
    skip: bool = False  # put the last layer's state beside the projections


class Adapter(nn.Module):
    """Project each layer down, apply GELU, and lay the layers side by side; the last state may join them unprojected.

    There is no up-projection, residual, norm or dropout: this is the papers' head, not Houlsby's adapter.
    """

    def __init__(self, layers: int, hidden: int, width: int, *, skip: bool = False) -> None:
        super().__init__()
        self.down = nn.Linear(hidden, width)
        # The original's start; truncated at two standard deviations, as in Keras.
        nn.init.trunc_normal_(self.down.weight, std=1e-3, a=-2e-3, b=2e-3)
        nn.init.zeros_(self.down.bias)
        self.skip = skip
        self.features = layers * width + (hidden if skip else 0)

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Give width x layers features (and the last state); within a projected feature the layers are neighbours."""
        projected = F.gelu(self.down(states), approximate="tanh")  # the 2020 code's GELU
        features = projected.permute(0, 2, 3, 1).flatten(start_dim=2)  # [batch, token, width * layer]
        return torch.cat([features, states[:, -1]], dim=-1) if self.skip else features


def width_of(width: float, hidden: int) -> int:
    """Turn a share of the hidden size into a number; numbers stay as they are."""
    return width if isinstance(width, int) else max(1, round(width * hidden))
