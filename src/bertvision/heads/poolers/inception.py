"""LP + adapter + Inception: GoogLeNet over neighbouring tokens and features of one view of the layers."""

import torch
from torch import Tensor, nn

from bertvision.heads.poolers.adapter import MixedAdapter
from bertvision.heads.poolers.config import Mix
from bertvision.heads.poolers.convolutions import Conv, Maps, MaxPool, dropout, shrunk
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask

# SPEC 3.6, from the original's history: outputs of 1x1; 3x3 reduced, 3x3; 5x5 reduced, 5x5; projected pool.
MODULES = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
FEATURES = 1024  # what module 5b gives
STRIDES = (2, 2, 2, 3, 2)  # of the stem, its two pools, and the pools below; reconstructed from the published size
POOLS_BEFORE = {"4a": 3, "5a": 2}
DROPOUT_AFTER = ("4a", "4d")


class Inception(nn.Module):
    """Run GoogLeNet's nine modules over the tokens' projected mixes; tokens stay, features become fewer."""

    def __init__(self, shape: StackShape, mix: Mix, width: int, *, dropout_rate: float = 0.2) -> None:
        super().__init__()
        self.view = MixedAdapter(shape, mix, width)
        self.stem = ReluConv(1, 512, 3, stride=STRIDES[0])
        self.narrow = ReluConv(512, 256, 1)
        self.wide = ReluConv(256, 128, 3)
        self.blocks = nn.ModuleDict()
        channels = 128
        for name, sizes in MODULES.items():
            self.blocks[name] = InceptionModule(channels, sizes, dropout_rate if name in DROPOUT_AFTER else 0)
            channels = sizes[0] + sizes[2] + sizes[4] + sizes[5]
        self.pools = nn.ModuleDict({name: MaxPool((3, 3), stride) for name, stride in POOLS_BEFORE.items()})
        self.pool = MaxPool((3, 3), 2)
        self.features = FEATURES * shrunk(width, *STRIDES)

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return what the network finds around each token; no last state joins it."""
        padding = ~mask[:, None, :, None]
        maps: Tensor = self.view(states, mask, segments)[:, None].masked_fill(padding, 0)
        maps = self.pool(self.stem(maps, padding))
        maps = self.pool(self.wide(self.narrow(maps, padding), padding))
        for name, block in self.blocks.items():
            maps = block(self.pools[name](maps) if name in self.pools else maps, padding)
        return maps.transpose(1, 2).flatten(start_dim=2)


class ReluConv(nn.Module):
    """A convolution with bias and ReLU whose padding tokens are zero.

    So the next convolution reads nothing there, and no pool takes anything from there, as ReLU gives nothing below 0.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1) -> None:
        super().__init__()
        self.conv = Conv(inputs, outputs, (kernel, kernel), stride=stride, bias=0.2)

    def forward(self, maps: Maps, padding: Tensor) -> Maps:
        """Convolve."""
        convolved: Tensor = self.conv(maps)
        return convolved.masked_fill_(padding, 0).relu_()


class InceptionModule(nn.Module):
    """Look at every place through windows of 1, 3 and 5, and at the largest values around it."""

    def __init__(self, inputs: int, sizes: tuple[int, int, int, int, int, int], dropout_rate: float) -> None:
        super().__init__()
        one, three_narrow, three, five_narrow, five, pooled = sizes
        self.one = ReluConv(inputs, one, 1)
        self.three_narrow, self.three = ReluConv(inputs, three_narrow, 1), ReluConv(three_narrow, three, 3)
        self.five_narrow, self.five = ReluConv(inputs, five_narrow, 1), ReluConv(five_narrow, five, 5)
        self.pool, self.pooled = MaxPool((3, 3), 1), ReluConv(inputs, pooled, 1)
        self.dropout = dropout(dropout_rate)

    def forward(self, maps: Maps, padding: Tensor) -> Maps:
        """Lay the four views side by side."""
        three = self.three(self.three_narrow(maps, padding), padding)
        five = self.five(self.five_narrow(maps, padding), padding)
        views = [self.one(maps, padding), three, five, self.pooled(self.pool(maps), padding)]
        kept: Tensor = self.dropout(torch.cat(views, dim=1))
        return kept
