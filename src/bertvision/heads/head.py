"""Pooler + readout; and which layer says what, where the head's logits are sums over the layers."""

import copy
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bertvision.errors import SettingsError
from bertvision.heads.poolers.depth import Ladder
from bertvision.heads.poolers.layers import (
    AveragePooling,
    ChosenLayers,
    LastState,
    LayerParts,
    LearnedPooling,
    SumOverLayers,
)
from bertvision.heads.readouts import (
    BiLstmReadout,
    BiLstmRowReadout,
    ClassReadout,
    JointReadout,
    SpanReadout,
    TagReadout,
)
from bertvision.kinds.kind import Kind
from bertvision.model_config import Pooling
from bertvision.records import State, state_name
from bertvision.shapes import LayerStates, Segments, TokenMask
from bertvision.training.loop import Still

OVER_PLACES = ("tokens", "windows")  # what a softmax runs over that does not see a shift of all logits of a column


class Head(nn.Module):
    """Reads all layers' states and gives logits. A pooler is a module with a number of `features`."""

    def __init__(
        self,
        pooler: nn.Module,
        readout: nn.Module,
        dropout: float | None = None,
        chosen: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        self.pooler = pooler
        self.readout = readout
        self.dropout = nn.Identity() if dropout is None else nn.Dropout(dropout)
        self.pooling: Pooling | None = None  # whether it reads one state per layer (`encode_pooled`), and which
        self.layers: tuple[int, ...] | None = None  # which of the encoder's states its experiment keeps; None: all
        self._chosen = chosen  # which of those it reads; None: all

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> Tensor:
        """Score every token (SpanLogits, TagLogits) or every row (ClassLogits), as the readout does."""
        states = self.own_states(states)
        logits: Tensor = self.readout(self.dropout(self.pooler(states, mask, segments)), states, mask)
        return logits

    def in_unit(self, unit: float) -> "Head":
        """Return a head of the same numbers that learns them in another unit; files have the labels' own, 1."""
        if not isinstance(self.readout, ClassReadout | BiLstmRowReadout) or self.readout.unit == unit:
            return self
        head = copy.deepcopy(self)
        readout = head.readout
        assert isinstance(readout, ClassReadout | BiLstmRowReadout)
        with torch.no_grad():
            for weight in readout.linear.parameters():
                weight.mul_(readout.unit / unit)
        readout.unit = unit
        return head

    def still_weights(self, kind: Kind) -> list[Still]:
        """Name what adds the same to the scores of all tokens or of all endings, which a softmax over them is."""
        biased = SpanReadout | ClassReadout | JointReadout | BiLstmReadout | BiLstmRowReadout
        if kind.softmax not in OVER_PLACES or not isinstance(self.readout, biased):
            return []
        still = [Still(self.readout.linear.bias, slice(2))]  # a joint readout's further columns are factors of pairs
        if isinstance(self.pooler, Ladder) and isinstance(self.readout, SpanReadout | ClassReadout):
            still.append(Still(self.pooler.last_bias))
        return still

    def ignores_shifts(self, kind: Kind) -> bool:
        """Whether no loss changes when the same is added to every last state: its path to the scores is linear."""
        is_linear = isinstance(self.pooler, LastState | AveragePooling | LearnedPooling | ChosenLayers)
        return kind.softmax in OVER_PLACES and is_linear and isinstance(self.readout, SpanReadout | ClassReadout)

    @property
    def places(self) -> tuple[int, ...] | None:
        """Return which of the states that it is given the head reads; None: all."""
        if self._chosen is None or self.layers is None:
            return self.layers if self._chosen is None else self._chosen
        return tuple(self.layers[place] for place in self._chosen)

    def own_states(self, states: LayerStates) -> Tensor:
        """Return those of the states that the head reads."""
        if (places := self.places) is None:
            return states
        return torch.stack([states[:, place] for place in places]).transpose(0, 1)  # in memory the layer comes first


class Count(NamedTuple):
    """How many numbers a module holds."""

    total: int  # weights and running statistics
    trainable: int


def count_parameters(module: nn.Module) -> Count:
    """Count a module's weights and running statistics (batch norm's step counter is neither)."""
    weights = sum(param.numel() for param in module.parameters())
    statistics = sum(buffer.numel() for buffer in module.buffers() if buffer.is_floating_point())
    trainable = sum(param.numel() for param in module.parameters() if param.requires_grad)
    return Count(weights + statistics, trainable)


def score_columns(head: Head) -> int:
    """Count the numbers that a head gives per token or row."""
    columns = head.readout.columns
    assert isinstance(columns, int)
    return columns


def layer_weights(head: Head) -> list[float] | None:
    """Return the share of each layer for a head that mixes them by one learned weight each."""
    mix = _mix_of(head)
    return None if mix is None else [round(weight, 6) for weight in mix.layer_weights().tolist()]


def weighted_states(head: Head, *, has_pooler: bool) -> list[State] | None:
    """Return which states the `layer_weights` of a head are of; None where it has none."""
    mix = _mix_of(head)
    if mix is None:
        return None
    own = head.pooler.places if isinstance(head.pooler, ChosenLayers) else range(len(mix.weights))
    given = own if head.places is None else [head.places[place] for place in own]
    return [_state_at(place, pooled=head.pooling == "first" and has_pooler) for place in given]


def _state_at(place: int, *, pooled: bool) -> State:
    """Return which state stands at a place of those that a head is given; `pooled`: the pooled one is the first."""
    if not pooled:
        return place
    return "pooled" if place == 0 else place - 1


def _mix_of(head: Head) -> LearnedPooling | None:
    # In the pooler alone: a joint readout has a mix of its own, of the first token.
    return next((module for module in head.pooler.modules() if isinstance(module, LearnedPooling)), None)


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
