"""What every pooler is: a module with a number of `features`, and with a config of its own.

(states, mask, segments) -> features per token; what padding holds must not change those of real tokens.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bertvision.shapes import LayerStates, TokenMask

OutputWeight = Float[Tensor, "column feature"]  # of the linear layer that reads a pooler's features
ByLayer = Float[Tensor, "layer batch token width"]


class LayerParts(NamedTuple):
    """What each layer adds to the logits, and what the last state adds where it is seen a second time, unprojected."""

    layers: Float[Tensor, "batch layer place column"]
    skip: Float[Tensor, "batch place column"] | None = None


@runtime_checkable
class SumOverLayers(Protocol):
    """A pooler after which nothing but a linear layer comes once its layers meet, so that every logit is their sum."""

    def layer_parts(self, states: LayerStates, mask: TokenMask, weight: OutputWeight) -> LayerParts:
        """Take the logits `weight` x features apart, exactly; a place is a token, or the row where features are its."""
        ...


def parts_of_mix(factors: Float[Tensor, " layer"], states: LayerStates, weight: OutputWeight) -> LayerParts:
    """Read every layer out by itself, times its factor: what a sum of layers, read out, is the sum of."""
    return LayerParts(factors[:, None, None] * (states @ weight.T))


def project_layers(states: LayerStates, linear: nn.Linear) -> ByLayer:
    """Apply a linear layer to every state; the layer comes first in the result, as it does in memory."""
    batch, layers, tokens, _ = states.shape
    # A batch of products reads the layers where they are; one product would copy them together first.
    places = states.transpose(0, 1).flatten(1, 2)
    weight = linear.weight.T.expand(layers, -1, -1)
    # Adding the bias afterwards would turn the whole result into float32 under autocast.
    projected = places.bmm(weight) if linear.bias is None else torch.baddbmm(linear.bias, places, weight)
    return projected.view(layers, batch, tokens, -1)


def width_of(width: float, hidden: int) -> int:
    """Turn a share of the hidden size into a number; numbers stay as they are."""
    return width if isinstance(width, int) else max(1, round(width * hidden))
