"""The papers' small convolutional networks.

The 1xN networks run along the features of one token, on all layers or on one view of them; the NxN network over
neighbouring tokens and features of one view.
"""

import torch
from torch import nn
from torch.nn import functional as F

from bertvision.errors import SettingsError
from bertvision.heads.poolers.adapter import MixedAdapter
from bertvision.heads.poolers.config import Mix
from bertvision.heads.poolers.convolutions import (
    Conv,
    Maps,
    MaxPool,
    Places,
    batch_norm,
    dropout,
    real_tokens,
    shrunk,
    spread,
)
from bertvision.heads.poolers.mixes import build_mix
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask

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
