"""A ladder beside the encoder: a narrow transformer that takes in one layer of the encoder at each of its own."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.heads.poolers.adapter import start_small
from bertvision.heads.poolers.pooler import project_layers
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask

TEMPERATURE = 0.1  # of the gates (Sung et al. 2022, Ladder Side-Tuning): they learn ten times as fast
WIDTH_OF_HEAD = 16  # of attention, or a little more
ALIGNED = 8  # numbers; the memory-saving kernels of attention take no other multiples in bf16


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
