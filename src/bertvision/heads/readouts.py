"""Features -> logits, one readout per kind of task."""

import torch
from torch import nn

from bertvision.shapes import SpanLogits, TokenFeatures, TokenMask


class SpanReadout(nn.Module):
    """Score every token as an answer's start and end."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 2)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, features: TokenFeatures, mask: TokenMask) -> SpanLogits:
        """Give start and end logits; padding gets the lowest number, so that it is never chosen and costs no loss."""
        # In float32 even under autocast: bf16 has eight bits, which is 0.03 at a logit of 6, too coarse for thresholds.
        with torch.autocast(features.device.type, enabled=False):
            logits: torch.Tensor = self.linear(features.float())
        return logits.masked_fill(~mask[..., None], torch.finfo(logits.dtype).min)
