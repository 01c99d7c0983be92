"""Adapter pooling: layers projected down by small layers.

Every layer by itself, all of them kept side by side; a mix of them (the papers' LP -> adapter); both; or four mixes.
The classification head of 2021 has a readout that knows every position besides.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.errors import SettingsError
from bertvision.heads.poolers.config import Gelu, Mix
from bertvision.heads.poolers.layers import LayerParts, OutputWeight, build_mix, project_layers
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask

MIXES = 4


class Adapter(nn.Module):
    """Project each layer down, apply GELU, and lay the layers side by side; the last state may join them unprojected.

    There is no up-projection, residual, norm or dropout: this is the papers' head, not Houlsby's adapter.
    """

    def __init__(
        self, layers: int, hidden: int, width: int, *, shared: bool = True, skip: bool = False, gelu: Gelu = "tanh"
    ) -> None:
        super().__init__()
        self.down = nn.Linear(hidden, width) if shared else LinearByLayer(layers, hidden, width)
        start_small(self.down.weight, self.down.bias)
        self.width, self.shared, self.skip, self.gelu = width, shared, skip, gelu
        self.features = layers * width + (hidden if skip else 0)

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return width x layers features (and the last state); within a projected feature the layers are neighbours."""
        features = self._projected(states).permute(0, 2, 3, 1).flatten(start_dim=2)  # [batch, token, width * layer]
        return torch.cat([features, states[:, -1]], dim=-1) if self.skip else features

    def layer_parts(self, states: LayerStates, mask: TokenMask, weight: OutputWeight) -> LayerParts:
        """Read every layer's projection out by the weights that are its own, and the last state by the rest."""
        layers = states.shape[1]
        projected = layers * self.width
        readout = weight[:, :projected].view(-1, self.width, layers)
        parts = torch.einsum("bltw,cwl->bltc", self._projected(states), readout)
        return LayerParts(parts, states[:, -1] @ weight[:, projected:].T if self.skip else None)

    def _projected(self, states: LayerStates) -> Tensor:
        if not self.shared:
            return F.gelu(self.down(states), approximate=self.gelu)
        # In memory the layer comes first: read so, states are not copied, which is a third of a head's time on a CPU.
        return F.gelu(self.down(states.transpose(0, 1)), approximate=self.gelu).transpose(0, 1)


class MixedAdapter(nn.Module):
    """Mix the layers into one state, project it down, apply GELU; the last state may join it unprojected."""

    def __init__(self, shape: StackShape, mix: Mix, width: int, *, skip: bool = False) -> None:
        super().__init__()
        self.mix = build_mix(mix, shape)
        self.down = nn.Linear(shape.hidden, width)
        start_small(self.down.weight, self.down.bias)
        self.skip = skip
        self.features = width + (shape.hidden if skip else 0)

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return width features (and the last state)."""
        projected = F.gelu(self.down(self.mix(states, mask, segments)), approximate="tanh")
        return torch.cat([projected, states[:, -1]], dim=-1) if self.skip else projected


class TwoAdapters(nn.Module):
    """Lay the projection of every layer and the projection of their learned mix side by side.

    No code of this head is left; of the readings that its published size allows, this is the natural one.
    """

    def __init__(self, shape: StackShape, width: int) -> None:
        super().__init__()
        self.of_layers = Adapter(shape.layers, shape.hidden, width)
        self.of_mix = MixedAdapter(shape, "learned", width)
        self.features = self.of_layers.features + self.of_mix.features

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return width x (layers + 1) features."""
        seen = (states, mask, segments)
        return torch.cat([self.of_layers(*seen), self.of_mix(*seen)], dim=-1)


class Mix4(nn.Module):
    """Mix the layers four times, project each mix down, apply GELU; the last state joins them unprojected."""

    def __init__(self, shape: StackShape, width: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(_spread_weights(shape.layers))
        self.down = LinearByLayer(MIXES, shape.hidden, width)
        start_small(self.down.weight, self.down.bias)
        self.features = MIXES * width + shape.hidden

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return width x 4 features, mix after mix, and the last state."""
        shares = self.weights.softmax(dim=1).to(states.dtype).expand(len(states), -1, -1)
        mixes = shares.bmm(states.flatten(start_dim=2))  # no copy of the states
        projected = F.gelu(self.down(mixes.view(len(states), MIXES, *states.shape[2:])), approximate="tanh")
        return torch.cat([projected.transpose(1, 2).flatten(start_dim=2), states[:, -1]], dim=-1)


class PositionalAdapter(nn.Module):
    """Project every state of every token down, apply the exact GELU, and lay all of them side by side.

    The readout has weights of its own for each position, so the head is bound to its length.
    """

    def __init__(self, shape: StackShape, width: int, length: int) -> None:
        super().__init__()
        self.down = nn.Linear(shape.hidden, width)  # starts as torch's linear layers do, as in 2021
        self.length = length
        self.features = length * width * shape.layers

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> Float[Tensor, "batch 1 feature"]:
        """Return one row of features per example: by token, then by width, then by layer; zeros where tokens lack."""
        features = self._projected(states, mask).flatten(start_dim=1)
        return F.pad(features, (0, self.features - features.shape[1]))[:, None]

    def layer_parts(self, states: LayerStates, mask: TokenMask, weight: OutputWeight) -> LayerParts:
        """Read every layer's projections of all tokens out by the weights that are its own."""
        projected = self._projected(states, mask)
        readout = weight.view(-1, self.length, *projected.shape[2:])[:, : projected.shape[1]]
        return LayerParts(torch.einsum("btwl,ctwl->blc", projected, readout)[:, :, None])

    def _projected(self, states: LayerStates, mask: TokenMask) -> Float[Tensor, "batch real_token width layer"]:
        if states.shape[2] > self.length:
            states, mask = self._cut_padding(states, mask)
        projected = F.gelu(project_layers(states, self.down)).permute(1, 2, 3, 0)
        return projected.masked_fill(~mask[:, :, None, None], 0.0)

    def _cut_padding(self, states: LayerStates, mask: TokenMask) -> tuple[Tensor, Tensor]:
        if mask[:, self.length :].any():
            longest = int(mask.sum(dim=1).max())
            raise SettingsError(
                f"a row of {longest} tokens is longer than the {self.length} that this ap_glue head was built for; "
                f"give its pooler a length of {longest}, or cut rows to {self.length} tokens"
            )
        return states[:, :, : self.length], mask[:, : self.length]


class LinearByLayer(nn.Module):
    """A linear layer of its own for every layer of the states."""

    def __init__(self, layers: int, hidden: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(layers, width, hidden))
        self.bias = nn.Parameter(torch.empty(layers, width))

    def forward(self, states: LayerStates) -> Tensor:
        """Project every layer by its own weights."""
        return torch.einsum("blth,lwh->bltw", states, self.weight) + self.bias[:, None]


def start_small(weight: Tensor, bias: Tensor) -> None:
    """Start a projection as the original did; truncated at two standard deviations, as in Keras."""
    nn.init.trunc_normal_(weight, std=1e-3, a=-2e-3, b=2e-3)
    nn.init.zeros_(bias)


def _spread_weights(layers: int) -> Tensor:
    """Start each mix at a depth of its own, from the lowest quarter to the highest, with e^4 between the ends at most.

    Four mixes that start alike would see the same for long.
    """
    depths = (torch.arange(layers) + 0.5) / layers
    centres = (torch.arange(MIXES) + 0.5) / MIXES
    return -4 * (depths - centres[:, None]).abs()
