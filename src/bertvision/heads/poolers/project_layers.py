"""One linear layer on the states of all layers, which are large and lie in memory layer by layer."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bertvision.shapes import LayerStates

ByLayer = Float[Tensor, "layer batch token width"]


def project_layers(states: LayerStates, linear: nn.Linear) -> ByLayer:
    """Apply a linear layer to every state; the layer comes first in the result, as it does in memory."""
    batch, layers, tokens, _ = states.shape
    # A batch of products reads the layers where they are; one product would copy them together first.
    places = states.transpose(0, 1).flatten(1, 2)
    weight = linear.weight.T.expand(layers, -1, -1)
    # Adding the bias afterwards would turn the whole result into float32 under autocast.
    projected = places.bmm(weight) if linear.bias is None else torch.baddbmm(linear.bias, places, weight)
    return projected.view(layers, batch, tokens, -1)
