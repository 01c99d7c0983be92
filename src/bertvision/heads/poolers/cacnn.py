"""Context-aware CNN filters: every row is read by convolution filters that were made from the row itself (Hulburd).

They are made in one of two ways, after Shen et al.: `SimpleGenerator` or `ContextGenerator`.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.heads.poolers.config import CacnnContextConfig, CacnnSimpleConfig
from bertvision.heads.poolers.layers import build_mix
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask

Filters = Float[Tensor, "batch place filter channel"]

KERNEL, POOL, DROPOUT = 5, 8, 0.2  # of the simplified generator (SPEC 11.4)
CONTEXT_KERNELS, CONTEXT_CHANNELS = (3, 5), 32  # of each kernel; the paper gives no sizes (SPEC 11.4)


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


class SimpleGenerator(nn.Module):
    """Convolve the row into as many channels as all filters have, and average them in windows: a filter's places."""

    def __init__(self, hidden: int, filters: int, length: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(hidden, filters * hidden, KERNEL, padding="same")
        self.bias = nn.Parameter(torch.empty(filters * hidden))
        nn.init.trunc_normal_(self.bias, std=0.03, a=-0.06, b=0.06)
        self.dropout = nn.Dropout(DROPOUT)
        self.filters, self.length = filters, length

    def forward(self, rows: TokenFeatures, mask: TokenMask) -> Filters:
        """Return the filters of each row."""
        real = mask[:, None]
        features = F.relu(self.conv((rows * mask[..., None]).transpose(1, 2))) * real
        # Windows of eight, three before and four after a token. After a ReLU the zeros of padding win no maximum, and
        # the same bias on all tokens moves none, so that it can be added behind.
        pooled = F.max_pool1d(features, POOL, stride=1, padding=POOL // 2)[..., 1:]
        pooled = self.dropout(pooled + self.bias[:, None].to(pooled.dtype))
        weights = window_weights(mask, self.length).to(pooled.dtype)
        filters: Tensor = weights @ pooled.transpose(1, 2)  # [batch, place, filter * hidden]
        return filters.view(*filters.shape[:2], self.filters, -1)


class ContextGenerator(nn.Module):
    """Convolve the row, keep each channel's maximum, and turn this vector into filters."""

    def __init__(self, hidden: int, filters: int, length: int, channels: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(hidden, CONTEXT_CHANNELS, kernel, padding="same") for kernel in CONTEXT_KERNELS
        )
        self.generate = nn.Linear(len(CONTEXT_KERNELS) * CONTEXT_CHANNELS, length * filters * channels)
        self.length, self.filters = length, filters

    def forward(self, rows: TokenFeatures, mask: TokenMask) -> Filters:
        """Return the filters of each row."""
        by_channel = (rows * mask[..., None]).transpose(1, 2)
        features = torch.cat([F.relu(conv(by_channel)) for conv in self.convs], dim=1)
        context = (features * mask[:, None]).amax(dim=2)  # zeros win no maximum after a ReLU
        filters: Tensor = self.generate(context)
        return filters.view(len(rows), self.length, self.filters, -1)


def window_weights(mask: TokenMask, count: int) -> Float[Tensor, "batch window token"]:
    """Spread windows over each row's real tokens, each half over the next one, with equal weights inside a window.

    Hulburd's rows had 384 tokens and windows of 100 every 50. Where a window begins inside a token it has that token.
    """
    lengths = mask.sum(dim=1)[:, None, None]
    window = torch.arange(count, device=mask.device)[:, None]
    token = torch.arange(mask.shape[1], device=mask.device)
    # In steps of 1 / (count + 1) token, so that all is exact: window w is [w, w + 2) steps of `lengths`.
    begun = (token + 1) * (count + 1) > window * lengths
    inside = begun & (token * (count + 1) < (window + 2) * lengths) & mask[:, None]
    return inside / inside.sum(dim=2, keepdim=True)
