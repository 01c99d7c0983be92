"""The classification head of 2021: an adapter on every token, and a readout that knows every position."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.errors import SettingsError
from bertvision.heads.poolers.pooler import LayerParts, OutputWeight, PoolerBase, project_layers
from bertvision.kinds.kind import Per
from bertvision.shapes import LayerStates, Segments, StackShape, TokenMask


class ApGlueConfig(PoolerBase):
    """Size of the projection, and how many tokens a row may have."""

    kind: Literal["ap_glue"] = "ap_glue"
    per: ClassVar[tuple[Per, ...]] = ("row",)
    classes_from: ClassVar[Literal["one state", "all tokens"]] = "all tokens"
    width: int = Field(128, ge=1)
    length: int = Field(128, ge=1)


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
