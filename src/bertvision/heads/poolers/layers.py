"""Layers as they are: mixed by learned weights, their mean, the last one alone, or some of them side by side.

And the last one through a dense layer, as transformers' classification heads put it before their output layer.

What every pooler is comes first: a module with a number of `features`, and with a config of its own. (states, mask,
segments) -> features per token; what padding holds must not change those of real tokens.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bertvision.errors import SettingsError
from bertvision.heads.poolers.config import Activation, Chosen, Mix, Norm
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask

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


SLICES: dict[Chosen, slice] = {
    "embeddings": slice(0, 1),
    "second_to_last": slice(-2, -1),
    "last_four": slice(-4, None),  # fewer where there are fewer
    "blocks": slice(1, None),  # the paper's "all 12 layers": without the embedding output
}
ACTIVATIONS: dict[Activation, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}


class LearnedPooling(nn.Module):
    """Weigh the layers by a learned softmax, shared by all tokens, and scale their sum."""

    def __init__(self, layers: int, hidden: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(layers) * 0.05)  # the original's start: Keras' random_normal
        self.scale = nn.Parameter(torch.ones(()))
        self.features = hidden

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Mix the layer axis away."""
        return self.scale * torch.einsum("l,blth->bth", self.weights.softmax(dim=0), states)

    def mix(self, states: LayerStates) -> Float[Tensor, " layer"]:
        """Return the factor on each layer."""
        return self.scale * self.weights.softmax(dim=0)

    def layer_parts(self, states: LayerStates, mask: TokenMask, weight: OutputWeight) -> LayerParts:
        """Return what each layer adds."""
        return parts_of_mix(self.mix(states), states, weight)

    def layer_weights(self) -> Tensor:
        """Return each layer's share."""
        return self.weights.detach().softmax(dim=0)


class AveragePooling(nn.Module):
    """Average the layers; no weights of its own."""

    def __init__(self, hidden: int, *, first_and_last: bool = False) -> None:
        super().__init__()
        self.first_and_last = first_and_last
        self.features = hidden

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Average the layer axis away."""
        # The papers cite Ma et al., who average the first and last layer; the papers' code averages all.
        chosen = states[:, [0, -1]] if self.first_and_last else states
        return chosen.mean(dim=1)

    def mix(self, states: LayerStates) -> Float[Tensor, " layer"]:
        """Return the factor on each layer."""
        layers = states.shape[1]
        if not self.first_and_last:
            return torch.full((layers,), 1 / layers, device=states.device)
        mix = torch.zeros(layers, device=states.device)
        mix[0] += 0.5
        mix[-1] += 0.5
        return mix

    def layer_parts(self, states: LayerStates, mask: TokenMask, weight: OutputWeight) -> LayerParts:
        """Return what each layer adds."""
        return parts_of_mix(self.mix(states), states, weight)


class LastState(nn.Module):
    """Pass the last layer on; no weights of its own."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.features = hidden

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return the last state."""
        return states[:, -1]

    def layer_parts(self, states: LayerStates, mask: TokenMask, weight: OutputWeight) -> LayerParts:
        """Attribute the whole logit to the last layer."""
        batch, layers, tokens, _ = states.shape
        parts = states.new_zeros(batch, layers, tokens, len(weight))
        parts[:, -1] = states[:, -1] @ weight.T
        return LayerParts(parts)


class ChosenLayers(nn.Module):
    """Lay some layers side by side, or mix them by learned weights."""

    def __init__(self, shape: StackShape, layers: Chosen, *, mixed: bool = False) -> None:
        super().__init__()
        self._slice = SLICES[layers]
        self.places = range(shape.layers)[self._slice]  # among the states that it is given
        count = len(self.places)
        if count == 0:
            raise SettingsError(f"there is no {layers} among {shape.layers} state; give more states.layers")
        self.mix = LearnedPooling(count, shape.hidden) if mixed else None
        self.features = shape.hidden if mixed else count * shape.hidden

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return the chosen states of every token."""
        chosen = states[:, self._slice]
        if self.mix is not None:
            mixed: TokenFeatures = self.mix(chosen, mask, segments)
            return mixed
        return chosen.transpose(1, 2).flatten(start_dim=2)


class SideBySide(nn.Module):
    """Lay layers side by side; no weights of its own."""

    def __init__(self, shape: StackShape, *, last: bool) -> None:
        super().__init__()
        self.layers = 1 if last else shape.layers
        self.features = self.layers * shape.hidden

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return the layers' states, one after the other."""
        return states[:, -self.layers :].transpose(1, 2).flatten(start_dim=2)

    def layer_parts(self, states: LayerStates, mask: TokenMask, weight: OutputWeight) -> LayerParts:
        """Read every layer out by its own part of the weights."""
        batch, layers, tokens, hidden = states.shape
        parts = states.new_zeros(batch, layers, tokens, len(weight))
        for place, own in enumerate(weight.view(len(weight), -1, hidden).unbind(dim=1), start=layers - self.layers):
            parts[:, place] = states[:, place] @ own.T
        return LayerParts(parts)


def build_mix(mix: Mix, shape: StackShape) -> nn.Module:
    """Build a pooler that gives one state of the encoder's width per token."""
    match mix:
        case "learned":
            return LearnedPooling(shape.layers, shape.hidden)
        case "average":
            return AveragePooling(shape.hidden)
        case "last":
            return LastState(shape.hidden)


class LastDense(nn.Module):
    """Pass the last layer through a dense layer as wide as itself."""

    def __init__(self, hidden: int, activation: Activation, *, bias: bool, norm: Norm | None, norm_eps: float) -> None:
        super().__init__()
        self.features = hidden
        self.dense = nn.Linear(hidden, hidden, bias=bias)
        self.activation = ACTIVATIONS[activation]()
        self.norm = nn.LayerNorm(hidden, norm_eps, bias=norm == "weight and bias") if norm else nn.Identity()

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return the features of the last state."""
        features: TokenFeatures = self.norm(self.activation(self.dense(states[:, -1])))
        return features
