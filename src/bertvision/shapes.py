"""Names for tensor shapes. The order of axes is fixed here and kept from disk to loss."""

from typing import NamedTuple

from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

TokenIds = Int[Tensor, "batch token"]
TokenMask = Bool[Tensor, "batch token"]  # true for real tokens, false for padding
Segments = Int[Tensor, "batch token"]  # 1 for the context (second text) and its closing token, 0 elsewhere
LayerStates = Float[Tensor, "batch layer token hidden"]  # layer 0 is the embedding output: BERT-base has 13
TokenFeatures = Float[Tensor, "batch token feature"]
SpanLogits = Float[Tensor, "batch token score"]  # start, end: lowest finite for padding (and joint factors: 0)
TagLogits = Float[Tensor, "batch token tag"]
ClassLogits = Float[Tensor, "batch class"]  # of a row: its classes, labels, or one number or score
Positions = Int[Tensor, " batch"]
Labels = Shaped[Tensor, "batch *each"]  # a class or number, a 0 or 1 for each label, or a tag for each token


class StackShape(NamedTuple):
    """What a head must know of the states it reads."""

    layers: int
    hidden: int
