"""What training minimises."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from bertvision.shapes import Positions, SpanLogits

SpanLoss = Literal["sum", "mean"]


def span_loss(logits: SpanLogits, starts: Positions, ends: Positions, how: SpanLoss) -> Tensor:
    """Give the cross-entropy of start and end, summed (2020 paper) or averaged (2021 code), mean over the windows."""
    start_logits, end_logits = logits.float().unbind(dim=-1)
    total = F.cross_entropy(start_logits, starts) + F.cross_entropy(end_logits, ends)
    return total if how == "sum" else total / 2


def span_losses(
    logits: Float[Tensor, "head batch token 2"], starts: Positions, ends: Positions, how: SpanLoss
) -> Float[Tensor, " head"]:
    """Give the same for many heads at once."""
    heads, batch, tokens, _ = logits.shape
    by_head = logits.float().permute(3, 0, 1, 2).reshape(2 * heads * batch, tokens)
    targets = torch.stack([starts, ends])[:, None].expand(2, heads, batch).flatten()
    total = F.cross_entropy(by_head, targets, reduction="none").view(2, heads, batch).mean(dim=2).sum(dim=0)
    return total if how == "sum" else total / 2
