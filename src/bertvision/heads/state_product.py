"""Matrix products with states, which are large, need no gradient and come in a short number format."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def product(by_layer: Tensor, weight: Tensor) -> Tensor:
    """Multiply states [layer, position, hidden] by weights [output, hidden]: float32 [layer, position, output]."""
    logits: Tensor = _Product.apply(by_layer, weight)  # type: ignore[no-untyped-call]
    return logits


def bmm_in_float32(one: Tensor, other: Tensor) -> Tensor:
    """Multiply batches of matrices with a result in float32, also where the factors are shorter."""
    if one.dtype == torch.float32:
        return torch.bmm(one, other)
    if one.device.type == "cuda":
        return torch.bmm(one, other, out_dtype=torch.float32)
    return torch.bmm(one, other).float()


class _Product(torch.autograd.Function):
    """What autocast would do, but with sums that stay in float32."""

    @staticmethod
    def forward(ctx: Any, by_layer: Tensor, weight: Tensor) -> Tensor:  # noqa: ANN401 (torch's own)
        ctx.save_for_backward(by_layer)
        layers = len(by_layer)
        return bmm_in_float32(by_layer, weight.to(by_layer.dtype).T.expand(layers, -1, -1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:  # noqa: ANN401
        (by_layer,) = ctx.saved_tensors
        return None, bmm_in_float32(gradient.to(by_layer.dtype).mT, by_layer).sum(dim=0)
