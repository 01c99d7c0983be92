"""The adapters of many heads in one matrix product, forward and backward."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from bertvision.heads.state_product import in_float32


class Projection(NamedTuple):
    """One head's weights: its projection, and the output layer that reads what was projected."""

    weight: Tensor  # [width, hidden], or one for each layer
    bias: Tensor
    output: Tensor  # [score, feature]; the projected features come first, width by width, a width's layers together
    width: int


def project_and_read(heads: Sequence[Projection], by_layer: Tensor, gelu: str) -> list[Tensor]:
    """Give each head's logits [position, score] from its projections, without the output layer's bias and skip.

    Either all heads share their projection among the layers or none does.
    """
    layers = len(by_layer)
    down = torch.cat([_stacked(head.weight, 3) for head in heads], dim=1)  # [1 or layer, width, hidden]
    bias = torch.cat([_stacked(head.bias, 2) for head in heads], dim=1)
    outputs = [head.output[:, : layers * head.width].view(-1, head.width, layers) for head in heads]
    readout = torch.cat([output.permute(2, 1, 0) for output in outputs], dim=1)  # [layer, width, score]
    widths = [head.width for head in heads]
    logits: Tensor = _ProjectAndRead.apply(by_layer, down, bias, readout, widths, gelu)  # type: ignore[no-untyped-call]
    return list(logits.unbind())


def _stacked(weight: Tensor, axes: int) -> Tensor:
    """Give a shared weight an axis for layers of length one."""
    return weight if weight.ndim == axes else weight[None]


class _ProjectAndRead(torch.autograd.Function):
    """GELU(states x down + bias) x readout, summed over layers, for heads side by side on the width axis.

    Written out because autograd would cut the projections into heads by copies, and because a head that overflows
    must not reach its neighbours: in the forward pass each is read out by itself, in the backward pass what comes from
    a loss that is no number is set to zero (its step is left out anyway).
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 (torch's own)
        by_layer: Tensor,
        down: Tensor,
        bias: Tensor,
        readout: Tensor,
        widths: list[int],
        gelu: str,
    ) -> Tensor:
        layers, dtype = len(by_layer), by_layer.dtype
        weight = down.to(dtype).mT.expand(layers, -1, -1)
        before = torch.bmm(by_layer, weight).add_(bias.to(dtype)[:, None])
        after, readout = F.gelu(before, approximate=gelu), readout.to(dtype)
        ctx.save_for_backward(by_layer, before, after, readout)
        ctx.widths, ctx.gelu, ctx.is_shared = widths, gelu, len(down) == 1
        return torch.stack(
            [in_float32(after[..., own], readout[:, own]).sum(dim=0) for own in _slices(widths)]
        )  # [head, position, score]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, Tensor, Tensor, None, None]:  # noqa: ANN401
        by_layer, before, after, readout = ctx.saved_tensors
        layers, scores = len(by_layer), gradient.shape[2]
        gradient = gradient.nan_to_num(0.0, 0.0, 0.0).to(after.dtype)
        gradient = gradient.transpose(0, 1).flatten(1).expand(layers, -1, -1)  # [layer, position, head * score]
        blocks = _block_diagonal(readout, ctx.widths)  # [layer, width, head * score]
        d_blocks = in_float32(after.mT, gradient)
        own = [
            d_blocks[:, where, place * scores : (place + 1) * scores] for place, where in enumerate(_slices(ctx.widths))
        ]
        d_after = torch.bmm(gradient, blocks.mT)
        d_before = torch.ops.aten.gelu_backward(d_after, before, approximate=ctx.gelu)
        d_down, d_bias = in_float32(d_before.mT, by_layer), d_before.sum(dim=1, dtype=torch.float32)
        if ctx.is_shared:
            d_down, d_bias = d_down.sum(dim=0, keepdim=True), d_bias.sum(dim=0, keepdim=True)
        return None, d_down, d_bias, torch.cat(own, dim=1), None, None


def _block_diagonal(readout: Tensor, widths: Sequence[int]) -> Tensor:
    """Spread [layer, width, score] so that every head has score columns of its own, zero for the others' widths."""
    layers, width, scores = readout.shape
    blocks = readout.new_zeros(layers, width, len(widths) * scores)
    for place, own in enumerate(_slices(widths)):
        blocks[:, own, place * scores : (place + 1) * scores] = readout[:, own]
    return blocks


def _slices(widths: Sequence[int]) -> list[slice]:
    ends = list(accumulate(widths))
    return [slice(end - width, end) for end, width in zip(ends, widths, strict=True)]
