"""What training minimises."""

from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from bertvision.shapes import Positions, SpanLogits

SpanLoss = Literal["sum", "mean"]


def span_loss(logits: SpanLogits, starts: Positions, ends: Positions, how: SpanLoss) -> Tensor:
    """Give the cross-entropy of start and end, summed (2020 paper) or averaged (2021 code), mean over the windows."""
    start_logits, end_logits = logits.float().unbind(dim=-1)
    total = F.cross_entropy(start_logits, starts) + F.cross_entropy(end_logits, ends)
    return total if how == "sum" else total / 2
