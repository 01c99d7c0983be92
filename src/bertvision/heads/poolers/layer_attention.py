"""Attention over depth: every token chooses for itself which layers it reads."""

from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from bertvision.heads.poolers.pooler import PoolerBase, Width, project_layers
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask


class LayerAttentionConfig(PoolerBase):
    """Size of query, keys and values."""

    kind: Literal["layer_attention"] = "layer_attention"
    width: Width = 64


class LayerAttention(nn.Module):
    """Weigh a token's layers by how their keys fit a query from its last state, and sum their values.

    Learned pooling has one set of weights for all tokens; here a rare name and a comma may look at different depths.
    """

    def __init__(self, shape: StackShape, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(shape.hidden, width)
        # No bias: one on all keys changes no weight, and the layers' own vectors are the values' bias.
        self.keys_values = nn.Linear(shape.hidden, 2 * width, bias=False)
        self.layer_vectors = nn.Parameter(0.02 * torch.randn(shape.layers, 2 * width))
        # Values start small, so that the head starts as the linear layer on the last state that it contains.
        nn.init.trunc_normal_(self.keys_values.weight[width:], std=1e-3, a=-2e-3, b=2e-3)
        self.features = width + shape.hidden

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return width features and the last state."""
        last = states[:, -1]
        query = self.query(last)
        seen = project_layers(states, self.keys_values)  # [layer, batch, token, 2 * width]
        keys, values = (seen + self.layer_vectors[:, None, None].to(seen.dtype)).chunk(2, dim=-1)
        scores = (query * keys).sum(dim=-1) / query.shape[-1] ** 0.5
        shares = scores.softmax(dim=0).to(values.dtype)
        summed = (shares[..., None] * values).sum(dim=0)
        return torch.cat([F.gelu(summed, approximate="tanh"), last], dim=-1)
