"""Heads whose last step is linear, computed together: the states are read once for all of them.

A head on its own computes features first and reads them out after. Here the same sums are taken in another order:
pooling heads read out every layer and mix the few numbers of each, all adapters project in one matrix product. A head
gets the same logits and gradients as alone, up to rounding, and one that goes wrong leaves the others alone.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bertvision.heads import gelu_readout
from bertvision.heads.gelu_readout import bmm_in_float32
from bertvision.heads.head import Head
from bertvision.heads.poolers.adapter import Adapter
from bertvision.heads.poolers.layers import AveragePooling, LastState, LearnedPooling
from bertvision.heads.readouts import ClassReadout, SpanReadout, TagReadout
from bertvision.shapes import LayerStates


class Member(NamedTuple):
    """A head's parts, by their types."""

    place: int
    pooler: LearnedPooling | AveragePooling | LastState | Adapter
    output: nn.Linear
    unit: float  # of its logits, the same for all


class Projection(NamedTuple):
    """One head's weights: its projection, and the output layer that reads what was projected."""

    weight: Tensor  # [width, hidden], or one for each layer
    bias: Tensor
    output: Tensor  # [score, feature]; the projected features come first, width by width, a width's layers together
    width: int


Part = tuple[Sequence[int], Sequence[Tensor]]  # places of heads, and what each of them gains: [position, score]


def can_be_grouped(head: Head) -> bool:
    """Return whether a head can be computed together with others."""
    return _member(0, head) is not None


def grouped_logits(heads: Sequence[Head], states: LayerStates) -> Tensor:
    """Return all heads' logits for all tokens, [head, batch, token, score]; padding is not hidden yet."""
    members = [member for place, head in enumerate(heads) if (member := _member(place, head)) is not None]
    assert len(members) == len(heads)
    batch, layers, tokens, hidden = states.shape
    by_layer = states.transpose(0, 1).reshape(layers, batch * tokens, hidden)  # no copy where layers lie apart
    gains: list[list[Tensor]] = [[] for _ in members]
    for places, parts in (_mixes(members, states, by_layer), *_adapters(members, by_layer), _skips(members, by_layer)):
        for place, own in zip(places, parts, strict=True):
            gains[place].append(own)
    biases = torch.stack([member.output.bias for member in members])
    logits = torch.stack([torch.stack(own).sum(dim=0) if own[1:] else own[0] for own in gains]) + biases[:, None]
    whole = logits.view(len(members), batch, tokens, -1)
    return whole if members[0].unit == 1 else members[0].unit * whole


def _member(place: int, head: Head) -> Member | None:
    pooler, readout = head.pooler, head.readout
    if not isinstance(pooler, LearnedPooling | AveragePooling | LastState | Adapter):
        return None
    if not isinstance(readout, SpanReadout | TagReadout | ClassReadout):
        return None
    return Member(place, pooler, readout.linear, readout.unit if isinstance(readout, ClassReadout) else 1.0)


def _mixes(members: Sequence[Member], states: LayerStates, by_layer: Tensor) -> Part:
    """Read every layer out for all pooling heads at once and mix the logits, which is mixing the layers."""
    mixing = [each for each in members if isinstance(each.pooler, LearnedPooling | AveragePooling)]
    if not mixing:
        return (), ()
    mixes = torch.stack(
        [each.pooler.mix(states) for each in mixing if isinstance(each.pooler, LearnedPooling | AveragePooling)]
    )
    logits = _read_out(by_layer, [each.output.weight for each in mixing])
    return [each.place for each in mixing], torch.einsum("kl,lpks->kps", mixes, logits).unbind()


def _adapters(members: Sequence[Member], by_layer: Tensor) -> list[Part]:
    """Project for all adapters of a kind in one product; kinds differ in sharing and in their GELU."""
    kinds: dict[tuple[bool, str], list[tuple[int, Projection]]] = {}
    for place, pooler, output, _ in members:
        if isinstance(pooler, Adapter):
            own = Projection(pooler.down.weight, pooler.down.bias, output.weight, pooler.width)
            kinds.setdefault((pooler.shared, pooler.gelu), []).append((place, own))
    return [
        ([place for place, _ in found], project_and_read([own for _, own in found], by_layer, gelu))
        for (_, gelu), found in kinds.items()
    ]


def _skips(members: Sequence[Member], by_layer: Tensor) -> Part:
    """Read out the last state for the heads that see it unprojected."""
    seeing = [
        each
        for each in members
        if isinstance(each.pooler, LastState) or (isinstance(each.pooler, Adapter) and each.pooler.skip)
    ]
    if not seeing:
        return (), ()
    hidden = by_layer.shape[-1]
    logits = _read_out(by_layer[-1:], [each.output.weight[:, -hidden:] for each in seeing])
    return [each.place for each in seeing], logits[0].unbind(dim=1)


def _read_out(by_layer: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Multiply by the heads' output layers: [layer, position, head, score]."""
    together = torch.stack(list(weights))  # [head, score, hidden]
    heads, scores, hidden = together.shape
    return product(by_layer, together.view(heads * scores, hidden)).view(*by_layer.shape[:2], heads, scores)


def project_and_read(heads: Sequence[Projection], by_layer: Tensor, gelu: str) -> list[Tensor]:
    """Return each head's logits [position, score] from its projections, without the output layer's bias and skip.

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


def product(by_layer: Tensor, weight: Tensor) -> Tensor:
    """Multiply states [layer, position, hidden] by weights [output, hidden]: float32 [layer, position, output]."""
    logits: Tensor = _Product.apply(by_layer, weight)  # type: ignore[no-untyped-call]
    return logits


class _Product(torch.autograd.Function):
    """What autocast would do, but with sums that stay in float32: states are large, and need no gradient."""

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
