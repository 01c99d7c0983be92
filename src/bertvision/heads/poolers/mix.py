"""The first step of many poolers: all layers mixed into one state."""

from typing import Literal

from torch import nn

from bertvision.heads.poolers.average_pooling import AveragePooling
from bertvision.heads.poolers.last_state import LastState
from bertvision.heads.poolers.learned_pooling import LearnedPooling
from bertvision.shapes import StackShape

Mix = Literal["learned", "average", "last"]


def build_mix(mix: Mix, shape: StackShape) -> nn.Module:
    """Build a pooler that gives one state of the encoder's width per token."""
    match mix:
        case "learned":
            return LearnedPooling(shape.layers, shape.hidden)
        case "average":
            return AveragePooling(shape.hidden)
        case "last":
            return LastState(shape.hidden)
