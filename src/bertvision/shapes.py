"""Names for tensor shapes. The order of axes is fixed here and kept from disk to loss."""

from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor

TokenIds = Int[Tensor, "batch token"]
TokenMask = Bool[Tensor, "batch token"]  # true for real tokens, false for padding
Segments = Int[Tensor, "batch token"]  # 1 for the context and its closing token, 0 for all before it and for padding
LayerStates = Float[Tensor, "batch layer token hidden"]  # layer 0 is the embedding output: BERT-base has 13
TokenFeatures = Float[Tensor, "batch token feature"]
SpanLogits = Float[Tensor, "batch token score"]  # start, end: lowest finite for padding (and joint factors: 0)
ClassLogits = Float[Tensor, "batch class"]
Positions = Int[Tensor, " batch"]
Labels = Int[Tensor, " batch"]


class StackShape(NamedTuple):
    """What a head must know of the states it reads."""

    layers: int
    hidden: int
