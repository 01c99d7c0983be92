"""The adapters of many heads in one matrix product, forward and backward."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bertvision.heads import gelu_readout
from bertvision.heads.state_product import bmm_in_float32


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
    widths = [head.width for head in heads]
    outputs = [head.output[:, : layers * head.width].view(-1, head.width, layers) for head in heads]
    down = _side_by_side([head.weight if head.weight.ndim == 3 else head.weight[None] for head in heads])
    bias = _side_by_side([head.bias if head.bias.ndim == 2 else head.bias[None] for head in heads])
    readout = _side_by_side([output.permute(2, 1, 0) for output in outputs])  # [layer, width, score]
    logits: Tensor = _ProjectAndRead.apply(  # type: ignore[no-untyped-call]
        by_layer, down, bias.expand(layers, -1), readout, widths, gelu
    )
    return list(logits.unbind())


def _side_by_side(weights: Sequence[Tensor]) -> Tensor:
    """Join [1 or layer, width, ...] on the width axis, each filled up with zeros."""
    parts = []
    for weight in weights:
        parts.append(weight)
        if zeros := gelu_readout.filling(weight.shape[1]):
            parts.append(weight.new_zeros(len(weight), zeros, *weight.shape[2:]))
    return torch.cat(parts, dim=1)


class _ProjectAndRead(torch.autograd.Function):
    """GELU(states x down + bias) x readout, summed over layers, for heads side by side on the width axis.

    Written out because autograd would cut the projections into heads by copies.
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
        weight = down.to(by_layer.dtype).mT.expand(len(by_layer), -1, -1)
        logits: Tensor
        logits, kept = _steps(readout).read_out(torch.bmm(by_layer, weight), bias, readout, widths, gelu)
        ctx.save_for_backward(by_layer, *kept)
        ctx.widths, ctx.gelu, ctx.is_shared = widths, gelu, len(down) == 1
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, Tensor, Tensor, None, None]:  # noqa: ANN401
        by_layer, *kept = ctx.saved_tensors
        d_projected, d_bias, d_readout = _steps(kept[-1]).read_out_backward(gradient, kept, ctx.widths, ctx.gelu)
        d_down = bmm_in_float32(d_projected.mT, by_layer)
        return None, d_down.sum(dim=0, keepdim=True) if ctx.is_shared else d_down, d_bias, d_readout, None, None


def _steps(readout: Tensor) -> ModuleType:
    """Choose between torch's own operations and, where Triton is there, one kernel for each direction (of spans)."""
    if readout.device.type == "cuda" and readout.shape[-1] == 2 and gelu_readout.has_triton():
        from bertvision.heads import gelu_readout_kernels  # imports Triton, which CPU builds of torch lack

        return gelu_readout_kernels
    return gelu_readout
