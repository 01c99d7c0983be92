"""Scores of start/end pairs as a band: row by start, column by length - 1. The loss and the decoder both use it."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from bertvision.shapes import SpanLogits

PairScores = Float[Tensor, "batch token length"]
Bounds = Float[Tensor, "batch token"]


def pair_scores(starts: Bounds, ends: Bounds, max_length: int) -> PairScores:
    """Add up the start and end logits of all spans of at most so many tokens; -inf beyond the row."""
    return starts[..., None] + F.pad(ends, (0, max_length - 1), value=-torch.inf).unfold(1, max_length, 1)


def bilinear_scores(factors: SpanLogits, max_length: int) -> PairScores:
    """Multiply u of the start by v of the end for the same spans: what a joint readout adds to their score.

    Term by term in float32, not as a matrix product, which a GPU may round to 10 bits.
    """
    of_start, of_end = factors.chunk(2, dim=-1)
    reach = F.pad(of_end, (0, 0, 0, max_length - 1)).unfold(1, max_length, 1)  # [batch, token, rank, length]
    return (of_start[..., None] * reach).sum(dim=2)
