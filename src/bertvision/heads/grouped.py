"""Heads whose last step is linear, computed together: the states are read once for all of them.

A head on its own computes features first and reads them out after. Here the same sums are taken in another order:
pooling heads read out every layer and mix the few numbers of each, all adapters project in one matrix product. A head
gets the same logits and gradients as alone, up to rounding, and one that goes wrong leaves the others alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bertvision.heads.adapter_product import Projection, project_and_read
from bertvision.heads.head import Head
from bertvision.heads.poolers.adapter import Adapter
from bertvision.heads.poolers.average_pooling import AveragePooling
from bertvision.heads.poolers.last_state import LastState
from bertvision.heads.poolers.learned_pooling import LearnedPooling
from bertvision.heads.readouts import ClassReadout, SpanReadout, TagReadout
from bertvision.heads.state_product import product
from bertvision.shapes import LayerStates


class Member(NamedTuple):
    """A head's parts, by their types."""

    place: int
    pooler: LearnedPooling | AveragePooling | LastState | Adapter
    output: nn.Linear


Part = tuple[Sequence[int], Sequence[Tensor]]  # places of heads, and what each of them gains: [position, score]


def can_be_grouped(head: Head) -> bool:
    """Tell whether a head can be computed together with others."""
    return _member(0, head) is not None


def grouped_logits(heads: Sequence[Head], states: LayerStates) -> Tensor:
    """Give all heads' logits for all tokens, [head, batch, token, score]; padding is not hidden yet."""
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
    return logits.view(len(members), batch, tokens, -1)


def _member(place: int, head: Head) -> Member | None:
    pooler, readout = head.pooler, head.readout
    if not isinstance(pooler, LearnedPooling | AveragePooling | LastState | Adapter):
        return None
    if not isinstance(readout, SpanReadout | TagReadout | ClassReadout):
        return None
    return Member(place, pooler, readout.linear)


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
    for place, pooler, output in members:
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
