"""Which layer says what: a head's logits as sums over the layers, exactly, where the head is such a sum."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bertvision.errors import SettingsError
from bertvision.heads.head import Head
from bertvision.heads.poolers.pooler import LayerParts, SumOverLayers
from bertvision.heads.readouts import ClassReadout, SpanReadout, TagReadout
from bertvision.records import state_name
from bertvision.shapes import LayerStates, Segments, TokenMask

SKIP, BIAS = "skip", "bias"
THOSE_THAT_ARE = (
    "learned_pooling, average_pooling, first_last_mean, ap_squad, ap_glue, last_linear, the regressions and "
    "adapter_64_* and adapter_386_* without joint"
)


class Contributions(NamedTuple):
    """What each part adds to the logits: every layer, the last state beside them (`skip`), and the `bias`."""

    names: tuple[str, ...]
    # The sum over the parts is the head's logit, of every real token, or of the row (one place) where rows are scored.
    parts: Float[Tensor, "batch part place column"]


def layer_contributions(head: Head, states: LayerStates, mask: TokenMask, segments: Segments) -> Contributions:
    """Take a head's logits apart by layers, in float32; refuse a head whose layers meet before its last step."""
    pooler, output = _sum_and_output(head)
    own = head.own_states(states)
    with torch.autocast(states.device.type, enabled=False):
        found = pooler.layer_parts(own.float(), mask, output.weight)
    if isinstance(head.readout, ClassReadout):
        found = _first_place(found)
    places = range(own.shape[1]) if head.places is None else head.places
    parts, names = [found.layers], [state_name(place) for place in places]
    if found.skip is not None:
        parts, names = [*parts, found.skip[:, None]], [*names, SKIP]
    bias = output.bias.expand_as(found.layers[:, :1])
    return Contributions((*names, BIAS), torch.cat([*parts, bias], dim=1))


def refuse_unless_sum(head: Head) -> None:
    """Refuse a head that is no sum over layers, before any work is done."""
    _sum_and_output(head)


def _sum_and_output(head: Head) -> tuple[SumOverLayers, nn.Linear]:
    pooler, readout = head.pooler, head.readout
    if not isinstance(pooler, SumOverLayers) or not isinstance(readout, SpanReadout | TagReadout | ClassReadout):
        parts = f"{type(pooler).__name__}, {type(readout).__name__}"
        raise SettingsError(
            f"this head ({parts}) is no sum over layers, so that no layer has a share of its logits; "
            f"the heads that are: {THOSE_THAT_ARE}"
        )
    return pooler, readout.linear


def _first_place(found: LayerParts) -> LayerParts:
    """Keep the place that a class is read from."""
    return LayerParts(found.layers[:, :, :1], None if found.skip is None else found.skip[:, :1])
