"""The papers' NxN network: convolutions over neighbouring tokens and features of one view of the layers."""

from typing import Literal

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from bertvision.heads.poolers.adapter import MixedAdapter
from bertvision.heads.poolers.convolutions import Conv, Maps, Places, batch_norm, dropout, real_tokens, shrunk, spread
from bertvision.heads.poolers.mixes import Mix
from bertvision.heads.poolers.pooler import PoolerBase, Width
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask

# SPEC 3.6: reconstructed from the published size.
KERNELS, STRIDE, CHANNELS = (5, 5, 3, 3), 2, 128


class CnnNxNConfig(PoolerBase):
    """What the network sees."""

    kind: Literal["cnn_nxn"] = "cnn_nxn"
    mix: Mix = "learned"
    width: Width = 64  # of the adapter between the mix and the network
    dropout: float = Field(0.2, ge=0, lt=1)


class CnnNxN(nn.Module):
    """Run a small network over the tokens' projected mixes, and lay the last state beside what it finds."""

    def __init__(self, shape: StackShape, mix: Mix, width: int, *, dropout_rate: float = 0.2) -> None:
        super().__init__()
        self.view = MixedAdapter(shape, mix, width)
        inputs = (1, *(CHANNELS for _ in KERNELS[1:]))
        self.net = nn.ModuleList(NgramLayer(*sizes) for sizes in zip(inputs, KERNELS, strict=True))
        self.dropout = dropout(dropout_rate)
        self.features = CHANNELS * shrunk(width, *(STRIDE for _ in KERNELS)) + shape.hidden

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
        self.conv = Conv(inputs, CHANNELS, (kernel, kernel), stride=STRIDE)
        self.norm = batch_norm(CHANNELS)

    def forward(self, maps: Maps, real: Places, mask: TokenMask) -> Maps:
        """Return maps of half the width that are zero at padding, as the next convolution needs them."""
        items = self.conv(maps).transpose(1, 2)[real][:, :, None]  # [real token, channel, 1, width]
        return spread(F.relu(self.norm(items), inplace=True)[:, :, 0], real, mask).transpose(1, 2)
