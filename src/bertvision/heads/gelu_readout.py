"""The memory-bound middle of grouped adapters: add a bias, apply GELU, read every head out by itself.

Here in torch's own operations; `gelu_readout_kernels` does the same on a GPU in one pass over the projections.
"""

import importlib.util
from collections.abc import Sequence
from functools import cache
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional as F

ALIGNED = 16  # heads' widths are filled up to a multiple of this, so that memory is read in whole pieces


def read_out(
    projected: Tensor, bias: Tensor, readout: Tensor, widths: Sequence[int], gelu: str
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return every head's logits [head, position, score], and what the way back needs.

    `projected` [layer, position, width] may be overwritten; `bias` [layer, width]; `readout` [layer, width, score]. A
    head that overflows must not reach its neighbours, so each is read out by itself: infinity times zero is no number.
    """
    before = projected.add_(bias.to(projected.dtype)[:, None])
    after, readout = F.gelu(before, approximate=gelu), readout.to(projected.dtype)
    logits = [bmm_in_float32(after[..., own], readout[:, own]).sum(dim=0) for own in slices(widths)]
    return torch.stack(logits), (before, after, readout)


def read_out_backward(
    gradient: Tensor, kept: Sequence[Tensor], widths: Sequence[int], gelu: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of the projections, the bias and the readout, from those of the logits.

    What comes from a loss that is no number is set to zero, for the neighbours' sake; its step is left out anyway.
    """
    before, after, readout = kept
    layers, scores = len(before), gradient.shape[2]
    gradient = gradient.nan_to_num(0.0, 0.0, 0.0).to(after.dtype)
    gradient = gradient.transpose(0, 1).flatten(1).expand(layers, -1, -1)  # [layer, position, head * score]
    d_blocks = bmm_in_float32(after.mT, gradient)  # [layer, width, head * score]
    places = [slice(head * scores, (head + 1) * scores) for head in range(len(widths))]
    d_readout = torch.cat([d_blocks[:, own, at] for own, at in zip(slices(widths), places, strict=True)], dim=1)
    blocks = torch.zeros_like(d_blocks, dtype=after.dtype)
    for own, at in zip(slices(widths), places, strict=True):
        blocks[:, own, at] = readout[:, own]
    d_after = torch.bmm(gradient, blocks.mT)
    d_before: Tensor = torch.ops.aten.gelu_backward(d_after, before, approximate=gelu)
    return d_before, d_before.sum(dim=1, dtype=torch.float32), d_readout


def bmm_in_float32(one: Tensor, other: Tensor) -> Tensor:
    """Multiply batches of matrices with a result in float32, also where the factors are shorter."""
    if one.dtype == torch.float32:
        return torch.bmm(one, other)
    if one.device.type == "cuda":
        return torch.bmm(one, other, out_dtype=torch.float32)
    return torch.bmm(one, other).float()


def slices(widths: Sequence[int]) -> list[slice]:
    """Return each head's part of the width axis, filling included."""
    filled = [width + filling(width) for width in widths]
    return [slice(end - width, end) for end, width in zip(accumulate(filled), filled, strict=True)]


def filling(width: int) -> int:
    """Return how many zeros stand after a head's width."""
    return -width % ALIGNED


@cache
def has_triton() -> bool:
    """Return whether torch came with Triton."""
    return importlib.util.find_spec("triton") is not None
