"""Over depth: attention to layers, a small recurrent network, or a narrow transformer that climbs the layers."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.heads.poolers.adapter import start_small
from bertvision.heads.poolers.layers import project_layers
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask

TEMPERATURE = 0.1  # of the gates (Sung et al. 2022, Ladder Side-Tuning): they learn ten times as fast
WIDTH_OF_HEAD = 16  # of attention, or a little more
ALIGNED = 8  # numbers; the memory-saving kernels of attention take no other multiples in bf16


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


class Ladder(nn.Module):
    """Climb the encoder's layers: mix the side state with a projection of each by a gate, then a transformer layer.

    The projection is shared: in the budget of one adapter, 25 of their own would leave a side state of 14 numbers.
    """

    def __init__(self, shape: StackShape, width: int) -> None:
        super().__init__()
        self.down = nn.Linear(shape.hidden, width)
        self.gates = nn.Parameter(torch.zeros(shape.layers - 1))  # half and half
        self.layers = nn.ModuleList(SideLayer(width) for _ in range(shape.layers))
        self.features = width + shape.hidden

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return the side state and the encoder's last state."""
        taps = project_layers(states, self.down)
        lowest, *others = self.layers
        side = lowest(taps[0], mask)
        for tap, gate, layer in zip(taps[1:], (self.gates / TEMPERATURE).sigmoid(), others, strict=True):
            side = layer(gate * tap + (1 - gate) * side, mask)
        return torch.cat([side, states[:, -1]], dim=-1)

    @property
    def last_bias(self) -> nn.Parameter:
        """What is added to the side state of every token at last."""
        last = self.layers[-1]
        assert isinstance(last, SideLayer)
        return last.mlp_out.bias


class SideLayer(nn.Module):
    """A transformer layer with the norms before its parts; it starts near passing its input on."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = max(1, width // WIDTH_OF_HEAD)
        self.size = width // self.heads  # heads x size falls short of the width by less than the heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention_in = nn.Linear(width, 3 * self.heads * self.size, bias=False)
        self.attention_out = nn.Linear(self.heads * self.size, width)
        self.mlp_in, self.mlp_out = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        for last in (self.attention_out, self.mlp_out):
            start_small(last.weight, last.bias)

    def forward(self, side: TokenFeatures, mask: TokenMask) -> TokenFeatures:
        """Return the next side state."""
        side = side + self.attention_out(self._attend(self.norm_attention(side), mask))
        update: Tensor = self.mlp_out(F.gelu(self.mlp_in(self.norm_mlp(side))))
        return side + update

    def _attend(self, side: TokenFeatures, mask: TokenMask) -> Tensor:
        parts = self.attention_in(side).unflatten(-1, (3, self.heads, self.size)).permute(2, 0, 3, 1, 4)
        queries, keys, values = F.pad(parts, (0, -self.size % ALIGNED))  # zeros change no product
        seen = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask[:, None, None], scale=self.size**-0.5
        )
        return seen[..., : self.size].transpose(1, 2).flatten(start_dim=2)
