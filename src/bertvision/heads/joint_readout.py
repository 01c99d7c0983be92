"""Features -> a score for every pair of start and end, with a say of all layers in whether there is an answer."""

import torch
from torch import nn

from bertvision.heads.readouts import glorot_linear, hide_padding, in_float32
from bertvision.shapes import LayerStates, SpanLogits, StackShape, TokenFeatures, TokenMask

# Factors start at a tenth of Glorot's size: with rank 8 and features near one, a pair's product is then 0.06 or so.
FACTOR_START = 0.1


class JointReadout(nn.Module):
    """Score a span (i, j) as start_i + end_j + u_i . v_j, and "no answer" by the first token's states of all layers.

    The columns are start, end, u and v; `training.losses` adds them up. No answer is the pair (0, 0), so what
    the layers say of it joins the start of token 0.
    """

    def __init__(self, features: int, shape: StackShape, rank: int) -> None:
        super().__init__()
        self.columns = 2 + 2 * rank
        self.linear = glorot_linear(features, self.columns)
        with torch.no_grad():
            self.linear.weight[2:] *= FACTOR_START
        self.layer_weights = nn.Parameter(torch.zeros(shape.layers))
        self.no_answer = glorot_linear(shape.hidden, 1)

    def forward(self, features: TokenFeatures, states: LayerStates, mask: TokenMask) -> SpanLogits:
        """Give start, end, u and v; padding has the lowest start and end, and factors of 0."""
        columns = in_float32(self.linear, features)
        shares = self.layer_weights.softmax(dim=0)
        first = (shares[:, None] * states[:, :, 0].float()).sum(dim=1)
        columns[:, 0, 0] += in_float32(self.no_answer, first)[:, 0]
        bounds, factors = columns[..., :2], columns[..., 2:]
        return torch.cat([hide_padding(bounds, mask), factors.masked_fill(~mask[..., None], 0.0)], dim=-1)
