"""Context-aware CNN filters: every row is read by convolution filters that were made from the row itself (Hulburd)."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.heads.poolers.filter_generators import ContextGenerator, Filters, SimpleGenerator
from bertvision.heads.poolers.mix import Mix, build_mix
from bertvision.heads.poolers.pooler import PoolerBase
from bertvision.kinds.kind import Per
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask


class CacnnSimpleConfig(PoolerBase):
    """The simplified variant, whose code is known: filters are averages of a wide convolution's channels."""

    kind: Literal["cacnn_simple"] = "cacnn_simple"
    per: ClassVar[tuple[Per, ...]] = ("token",)
    searches_context: ClassVar[bool] = True
    mix: Mix = "last"  # what is read: Hulburd's last state, or a mix of all
    filters: int = Field(4, ge=1)
    length: int = Field(6, ge=1)  # of a filter, in tokens


class CacnnContextConfig(PoolerBase):
    """The variant of the paper: filters come from one vector of the whole row. Its sizes are not known."""

    kind: Literal["cacnn_context"] = "cacnn_context"
    per: ClassVar[tuple[Per, ...]] = ("token",)
    searches_context: ClassVar[bool] = True
    mix: Mix = "last"
    filters: int = Field(4, ge=1)
    length: int = Field(5, ge=1)
    rank: int = Field(16, ge=1)  # filters read this many learned directions of the state


class Cacnn(nn.Module):
    """Make filters from the whole row, and run them over its context; their maps are the features.

    Hulburd read the start from the first half of the maps and the end from the second; the readout here reads both
    from all maps, which includes that.
    """

    def __init__(self, mix: nn.Module, view: nn.Module, generator: nn.Module, filters: int) -> None:
        super().__init__()
        self.mix = mix
        self.view = view
        self.generator = generator
        self.features = filters

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return one number per filter; the question makes the filters but is not searched by them."""
        rows = self.mix(states, mask, segments)
        filters = self.generator(rows, mask)
        context = self.view(rows) * (mask & (segments == 1))[..., None]
        # As in attention, so that the maps start near one at any size; Hulburd's readout started near zero instead.
        scale: float = (filters.shape[1] * filters.shape[3]) ** -0.5
        return correlate(context, filters) * scale


def build_cacnn(config: CacnnSimpleConfig | CacnnContextConfig, shape: StackShape) -> Cacnn:
    """Join a generator with what its filters read."""
    mix, filters, length = build_mix(config.mix, shape), config.filters, config.length
    if isinstance(config, CacnnSimpleConfig):
        return Cacnn(mix, nn.Identity(), SimpleGenerator(shape.hidden, filters, length), filters)
    # A filter over the whole state is its few numbers times this view's rows; projecting the row first is the same.
    view = nn.Linear(shape.hidden, config.rank, bias=False)
    return Cacnn(mix, view, ContextGenerator(shape.hidden, filters, length, config.rank), filters)


def correlate(rows: Float[Tensor, "batch token channel"], filters: Filters) -> Float[Tensor, "batch token filter"]:
    """Run each row's own filters over it, with zeros beyond its ends; a filter's middle lies on the token."""
    batch, length, count, _ = filters.shape
    before, tokens = (length - 1) // 2, rows.shape[1]
    padded = F.pad(rows, (0, 0, before, length - 1 - before))
    # One product per row, its places shifted together: a convolution with a group per row in a quarter of a CPU's time.
    products = (padded @ filters.flatten(1, 2).mT.to(padded.dtype)).view(batch, -1, length, count)
    return torch.stack([products[:, place : place + tokens, place] for place in range(length)]).sum(dim=0)
