"""Over depth: every token reads its own states, by attention to layers or by a small recurrent network."""

import torch
from torch import nn
from torch.nn import functional as F

from bertvision.heads.poolers.pooler import project_layers
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask


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


class DepthReader(nn.Module):
    """Project every state down and run a GRU from the lowest layer to the highest, token by token.

    Its last state and the encoder's remain.
    """

    def __init__(self, shape: StackShape, width: int) -> None:
        super().__init__()
        self.down = nn.Linear(shape.hidden, width)
        self.gru = nn.GRU(width, width)
        self.features = width + shape.hidden

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return width features and the last state."""
        batch, _, tokens, _ = states.shape
        projected = project_layers(states, self.down).flatten(1, 2)
        # Autocast would run cuDNN's GRU in float16, also where it was asked for bf16: small gradients would be lost.
        with torch.autocast(states.device.type, enabled=False):
            _, read = self.gru(projected.float())
        return torch.cat([read[0].unflatten(0, (batch, tokens)), states[:, -1]], dim=-1)
