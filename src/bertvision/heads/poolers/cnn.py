"""The papers' small convolutional networks, and what they are built of.

The 1xN networks run along the features of one token, on all layers or on one view of them; the NxN network over
neighbouring tokens and features of one view. Maps are [item, channel, token, width], padded as Keras pads them.

Where each token is read for itself, an item is one real token and its token axis has length 1; where neighbours are
read, an item is a row of tokens. Strides and dilations are on the width alone, so that every token keeps its features.
"""

import functools
import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.errors import SettingsError
from bertvision.heads.poolers.adapter import MixedAdapter
from bertvision.heads.poolers.config import Mix
from bertvision.heads.poolers.layers import build_mix
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask

Maps = Float[Tensor, "item _ token _"]  # channels and width change from layer to layer
Places = tuple[Tensor, ...]
Padding = Literal["same", "valid"]


class Conv(nn.Module):
    """A convolution that starts as Keras starts it and pads as Keras pads; without bias unless its start is given."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: tuple[int, int],
        *,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
        padding: Padding = "same",
        bias: float | None = None,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs // groups, *kernel))
        nn.init.xavier_uniform_(self.weight)
        self.bias = None if bias is None else nn.Parameter(torch.full((outputs,), bias))
        self.stride, self.dilation, self.groups, self.padding = stride, dilation, groups, padding
        self.tokens = kernel[0]
        self.reach = (kernel[1] - 1) * dilation + 1

    def forward(self, maps: Maps) -> Maps:
        """Convolve; with 'same' padding every token stays, and a width becomes ceil(width / stride)."""
        left, right = (0, 0) if self.padding == "valid" else same_padding(maps.shape[-1], self.reach, self.stride)
        if self.weight.shape[1] == 1:
            padded = F.pad(maps, (left, right, self.tokens // 2, self.tokens // 2))
            return self._of_one_channel(padded) if self.groups == 1 else self._by_channel(padded)
        if right > left:  # torch pads both sides alike
            maps = F.pad(maps, (0, right - left))
        items, _, tokens, _ = maps.shape
        maps, weight = (
            each.contiguous(memory_format=torch.channels_last) for each in (_in_few_shapes(maps), self.weight)
        )
        found = F.conv2d(maps, weight, self.bias, (1, self.stride), (self.tokens // 2, left), (1, self.dilation))
        return found[:items, :, :tokens]

    def _of_one_channel(self, padded: Tensor) -> Tensor:
        """Lay every window out and multiply: a GPU's library is slow where there is a single channel."""
        across = self.weight.shape[2]
        windows = padded[:, 0].unfold(1, across, 1).unfold(2, self.reach, self.stride)[..., :: self.dilation]
        return F.linear(windows.flatten(start_dim=3), self.weight.flatten(start_dim=1), self.bias).permute(0, 3, 1, 2)

    def _by_channel(self, padded: Tensor) -> Tensor:
        """Add up shifted maps, each channel with its own weights: half a GPU library's time for an Xception."""
        maps, taps = padded.contiguous(memory_format=torch.channels_last), self.weight[:, 0, 0].to(padded.dtype)
        width = maps.shape[-1] - self.reach + 1
        shifted = (maps[..., tap : tap + width] * taps[:, tap, None, None] for tap in range(taps.shape[1]))
        return functools.reduce(torch.add, shifted)


def _in_few_shapes(maps: Tensor) -> Tensor:
    """Fill items and tokens up with zeros on a GPU: its library plans each shape anew, and every batch has another."""
    if maps.device.type != "cuda":
        return maps
    items, _, tokens, _ = maps.shape
    more_items, more_tokens = -items % (1024 if tokens == 1 else 16), 0 if tokens == 1 else -tokens % 32
    return F.pad(maps, (0, 0, 0, more_tokens, 0, 0, 0, more_items))


class AveragePool(nn.Module):
    """Average each value with its two neighbours, as Keras does: what is padded takes no part in the mean."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, maps: Maps) -> Maps:
        """Make the maps narrower."""
        left, _ = same_padding(maps.shape[-1], 3, self.stride)
        # The right edge may need one value more than the left one: ceil_mode lets the last window reach over it.
        return F.avg_pool2d(maps, (1, 3), (1, self.stride), (0, left), ceil_mode=True, count_include_pad=False)


class MaxPool(nn.Module):
    """Take the largest value of each window, as Keras does; the token axis keeps its length."""

    def __init__(self, window: tuple[int, int], stride: int) -> None:
        super().__init__()
        self.window, self.stride = window, stride

    def forward(self, maps: Maps) -> Maps:
        """Make the maps narrower; where a window covers neighbours, padding must hold no more than real tokens do."""
        left, _ = same_padding(maps.shape[-1], self.window[1], self.stride)
        return F.max_pool2d(maps, self.window, (1, self.stride), (self.window[0] // 2, left), ceil_mode=True)


def same_padding(width: int, reach: int, stride: int) -> tuple[int, int]:
    """Return Keras' padding to the left and right; an odd sum has the larger part on the right."""
    total = max(0, (shrunk(width, stride) - 1) * stride + reach - width)
    return total // 2, total - total // 2


def shrunk(width: int, *strides: int) -> int:
    """Return the width that is left after 'same' layers of these strides."""
    for stride in strides:
        width = math.ceil(width / stride)
    return width


def batch_norm(channels: int) -> nn.BatchNorm2d:
    """Build Keras' batch normalisation, whose momentum .99 is torch's .01."""
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def dropout(rate: float) -> nn.Module:
    """Build dropout, or nothing where the rate is 0."""
    return nn.Dropout(rate) if rate else nn.Identity()


def real_tokens(mask: TokenMask) -> Places:
    """Return rows and positions of all real tokens, an index that gathers them out of [batch, token, ...].

    Found once per pass: the host must wait for their number, as it would at every `[mask]`, forward and backward.
    """
    return mask.nonzero(as_tuple=True)


def spread(values: Tensor, real: Places, mask: TokenMask) -> Tensor:
    """Put what was gathered of real tokens back into its places; padding gets zeros."""
    places = values.new_zeros(*mask.shape, *values.shape[1:])
    places[real] = values
    return places


# SPEC 3.6. Their code is lost; of the thousands of stacks that have the published sizes, this is one.
KERNELS, STRIDES, CHANNELS = (11, 7, 7, 7), (2, 2, 3, 1), (64, 128, 128, 128)
DILATIONS, CHANNELS_IF_DILATED = (1, 2, 4, 8), (128, 128, 128, 128)
NGRAM_KERNELS, NGRAM_STRIDE, NGRAM_CHANNELS = (5, 5, 3, 3), 2, 128  # reconstructed from the published size


class Cnn1xN(nn.Module):
    """Run a small network over the features of each token, and lay the last state beside what it finds."""

    def __init__(
        self, shape: StackShape, mix: Mix | None, width: int | None, *, dilated: bool = False, dropout_rate: float = 0.2
    ) -> None:
        super().__init__()
        self.view = None if mix is None else build_view(shape, mix, width)
        if mix is None and width is not None:
            raise SettingsError(f"an adapter of width {width} needs one state to project; give the pooler a `mix`")
        self.net = nn.Sequential(*unigram_layers(shape.layers if mix is None else 1, dilated=dilated))
        self.dropout = dropout(dropout_rate)
        self.features = CHANNELS[-1] * shrunk(width or shape.hidden, *STRIDES) + shape.hidden

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return what the network finds in each real token (zeros for padding), and the last state."""
        real = real_tokens(mask)
        if self.view is None:
            items = states.transpose(1, 2)[real][:, :, None]  # [real token, layer, 1, hidden]
        else:
            items = self.view(states, mask, segments)[real][:, None, None]
        found = self.dropout(self.net(items).flatten(start_dim=1))
        return torch.cat([spread(found, real, mask), states[:, -1]], dim=-1)


class CnnNxN(nn.Module):
    """Run a small network over the tokens' projected mixes, and lay the last state beside what it finds."""

    def __init__(self, shape: StackShape, mix: Mix, width: int, *, dropout_rate: float = 0.2) -> None:
        super().__init__()
        self.view = MixedAdapter(shape, mix, width)
        inputs = (1, *(NGRAM_CHANNELS for _ in NGRAM_KERNELS[1:]))
        self.net = nn.ModuleList(NgramLayer(*sizes) for sizes in zip(inputs, NGRAM_KERNELS, strict=True))
        self.dropout = dropout(dropout_rate)
        self.features = NGRAM_CHANNELS * shrunk(width, *(NGRAM_STRIDE for _ in NGRAM_KERNELS)) + shape.hidden

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return what the network finds around each token, and the last state."""
        real = real_tokens(mask)
        maps = self.view(states, mask, segments)[:, None].masked_fill(~mask[:, None, :, None], 0)
        for layer in self.net:
            maps = layer(maps, real, mask)
        found = self.dropout(maps.transpose(1, 2).flatten(start_dim=2))
        return torch.cat([found, states[:, -1]], dim=-1)


class NgramLayer(nn.Module):
    """A convolution, batch normalisation over real tokens alone, ReLU."""

    def __init__(self, inputs: int, kernel: int) -> None:
        super().__init__()
        self.conv = Conv(inputs, NGRAM_CHANNELS, (kernel, kernel), stride=NGRAM_STRIDE)
        self.norm = batch_norm(NGRAM_CHANNELS)

    def forward(self, maps: Maps, real: Places, mask: TokenMask) -> Maps:
        """Return maps of half the width that are zero at padding, as the next convolution needs them."""
        items = self.conv(maps).transpose(1, 2)[real][:, :, None]  # [real token, channel, 1, width]
        return spread(F.relu(self.norm(items), inplace=True)[:, :, 0], real, mask).transpose(1, 2)


def build_view(shape: StackShape, mix: Mix, width: int | None) -> nn.Module:
    """Build what turns all layers into one vector per token: a mix, with an adapter where a width is given."""
    return build_mix(mix, shape) if width is None else MixedAdapter(shape, mix, width)


def unigram_layers(channels: int, *, dilated: bool) -> list[nn.Module]:
    """Build the four convolutions; those that are dilated leave their strides to pools, as Keras allows no both."""
    layers: list[nn.Module] = []
    outputs = CHANNELS_IF_DILATED if dilated else CHANNELS
    for inputs, output, kernel, stride, dilation in zip(
        (channels, *outputs), outputs, KERNELS, STRIDES, DILATIONS, strict=False
    ):
        conv = Conv(inputs, output, (1, kernel), stride=1 if dilated else stride, dilation=dilation if dilated else 1)
        layers += [conv, batch_norm(output), nn.ReLU(inplace=True)]
        layers += [MaxPool((1, stride), stride)] if dilated and stride > 1 else []
    return layers
