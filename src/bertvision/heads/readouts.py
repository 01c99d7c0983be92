"""Features -> logits, one readout per kind of task."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bertvision.shapes import ClassLogits, LayerStates, SpanLogits, TagLogits, TokenFeatures, TokenMask

RowFeatures = Float[Tensor, "batch place feature"]  # of every token, or one row for all of them


class SpanReadout(nn.Module):
    """Score every token as an answer's start and end."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.columns = 2
        self.linear = glorot_linear(features, 2)

    def forward(self, features: TokenFeatures, states: LayerStates, mask: TokenMask) -> SpanLogits:
        """Give start and end logits; padding gets the lowest number, so that it is never chosen and costs no loss."""
        return hide_padding(in_float32(self.linear, features), mask)


class TagReadout(nn.Module):
    """Score every token as each tag."""

    def __init__(self, features: int, tags: int) -> None:
        super().__init__()
        self.columns = tags
        self.linear = glorot_linear(features, tags)

    def forward(self, features: TokenFeatures, states: LayerStates, mask: TokenMask) -> TagLogits:
        """Give a logit per tag; padding has some too, which no loss and no prediction looks at."""
        return in_float32(self.linear, features)


class ClassReadout(nn.Module):
    """Score every row from the features of its first token: classes, labels, or one number."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.columns = classes
        self.linear = glorot_linear(features, classes)

    def forward(self, features: RowFeatures, states: LayerStates, mask: TokenMask) -> ClassLogits:
        """Give a logit per class."""
        return in_float32(self.linear, features[:, 0])


def glorot_linear(features: int, outputs: int) -> nn.Linear:
    """Build the papers' output layer: Glorot-uniform, bias 0."""
    linear = nn.Linear(features, outputs)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def in_float32(linear: nn.Linear, features: Tensor) -> Tensor:
    """Apply an output layer in float32 even under autocast.

    bf16 has eight bits, which is 0.03 at a logit of 6, too coarse for thresholds.
    """
    with torch.autocast(features.device.type, enabled=False):
        logits: Tensor = linear(features.float())
    return logits


def hide_padding(logits: Float[Tensor, "*head batch token score"], mask: TokenMask) -> Tensor:
    """Give padding the lowest number, in one head's logits or in those of many."""
    return logits.masked_fill(~mask[..., None], torch.finfo(logits.dtype).min)
