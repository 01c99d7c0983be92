"""The papers' image networks, on all layers or on one view of them: the Xceptions of 2020, and Inception (GoogLeNet).

The Xceptions run along the features of each token: for classification, whole or cut short, with the layers as channels;
for questions, shorter, on one view of the layers (LP + adapter + Xception). Inception runs over neighbouring tokens and
features of such a view (LP + adapter + Inception). Below each stand its building blocks.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from bertvision.heads.poolers.adapter import MixedAdapter
from bertvision.heads.poolers.cnn import (
    AveragePool,
    Conv,
    Maps,
    MaxPool,
    Padding,
    batch_norm,
    dropout,
    real_tokens,
    shrunk,
    spread,
)
from bertvision.heads.poolers.config import Mix
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask


class Plan(NamedTuple):
    """The size of an Xception."""

    stem_stride: int
    stem_padding: Padding
    blocks: tuple[int, ...]  # channels of the blocks that halve the width
    middle: int  # number of blocks that keep everything
    exit_stride: int


# SPEC 3.5. The pools average, as in the code; a saved summary of the original has max pools in the last two blocks.
FULL = Plan(stem_stride=3, stem_padding="valid", blocks=(128, 256, 728), middle=8, exit_stride=2)
# SPEC 3.6: reconstructed from the published size.
MODIFIED = Plan(stem_stride=5, stem_padding="same", blocks=(128, 256), middle=3, exit_stride=1)
MODIFIED_STRIDES = (MODIFIED.stem_stride, *(2 for _ in MODIFIED.blocks), MODIFIED.exit_stride)
EXIT = 2048  # channels of the last layer
ABBREVIATED = 512  # channels of the one block that is left
SMALLEST = 9  # the width of which the stem, which pads nothing, leaves 1


class Xception(nn.Module):
    """Run Xception over the features of each token and average what it finds; the last state may join it.

    The papers gave it first tokens alone; given more, its batch statistics are those of all real tokens it is given.
    """

    def __init__(self, shape: StackShape, *, full: bool = False, skip: bool = False) -> None:
        super().__init__()
        layers = xception_layers(shape.layers, FULL) if full else abbreviated_layers(shape.layers)
        self.widen = nn.ZeroPad2d((0, SMALLEST - shape.hidden, 0, 0)) if shape.hidden < SMALLEST else nn.Identity()
        self.net = nn.Sequential(*layers)
        self.skip = skip
        self.features = (EXIT if full else ABBREVIATED) + (shape.hidden if skip else 0)

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return the average over each real token's features (zeros for padding), and the last state."""
        real = real_tokens(mask)
        items = self.widen(states.transpose(1, 2)[real][:, :, None])  # [real token, layer, 1, hidden]
        found = spread(self.net(items).mean(dim=(2, 3)), real, mask)
        return torch.cat([found, states[:, -1]], dim=-1) if self.skip else found


class ModifiedXception(nn.Module):
    """Run a shorter Xception over each token's projected mix and keep all that it finds."""

    def __init__(self, shape: StackShape, mix: Mix, width: int, *, dropout_rate: float = 0.2) -> None:
        super().__init__()
        self.view = MixedAdapter(shape, mix, width)
        self.net = nn.Sequential(*xception_layers(1, MODIFIED))
        self.dropout = dropout(dropout_rate)
        self.features = EXIT * shrunk(width, *MODIFIED_STRIDES)

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return what the network finds in each real token (zeros for padding); no last state joins it."""
        real = real_tokens(mask)
        items = self.view(states, mask, segments)[real][:, None, None]
        return spread(self.dropout(self.net(items).flatten(start_dim=1)), real, mask)


def abbreviated_layers(channels: int) -> list[nn.Module]:
    """Build the stem and one block (SPEC 3.4)."""
    return [*stem_layers(channels, (64, 128), 3, "valid"), halving_block(128, 256, ABBREVIATED, leading_relu=False)]


def xception_layers(channels: int, plan: Plan) -> list[nn.Module]:
    """Build Xception's entry, middle and exit for one token's features."""
    first, *later = plan.blocks
    last = plan.blocks[-1]
    layers = [*stem_layers(channels, (32, 64), plan.stem_stride, plan.stem_padding)]
    layers += [halving_block(64, first, first, leading_relu=False)]
    layers += [halving_block(*sizes) for sizes in zip(plan.blocks, later, later, strict=False)]
    layers += [Shortcut(middle_layers(last), nn.Identity()) for _ in range(plan.middle)]
    layers += [halving_block(last, last, 1024, stride=plan.exit_stride)]
    layers += [*separable_layers(1024, 1536), nn.ReLU(inplace=True)]
    return [*layers, *separable_layers(1536, EXIT), nn.ReLU(inplace=True)]


def stem_layers(channels: int, outputs: tuple[int, int], stride: int, padding: Padding) -> list[nn.Module]:
    """Build the two plain convolutions that an Xception begins with."""
    first, second = outputs
    return [
        *(Conv(channels, first, (1, 3), stride=stride, padding=padding), batch_norm(first), nn.ReLU(inplace=True)),
        *(Conv(first, second, (1, 3), padding=padding), batch_norm(second), nn.ReLU(inplace=True)),
    ]


class Shortcut(nn.Module):
    """Add what a few layers find to what a shortcut passes on."""

    def __init__(self, layers: list[nn.Module], shortcut: nn.Module) -> None:
        super().__init__()
        self.layers, self.shortcut = nn.Sequential(*layers), shortcut

    def forward(self, maps: Maps) -> Maps:
        """Return the sum."""
        total: Tensor = self.layers(maps) + self.shortcut(maps)
        return total


def halving_block(inputs: int, inner: int, outputs: int, *, stride: int = 2, leading_relu: bool = True) -> Shortcut:
    """Build two separable convolutions and a pool beside a 1x1 convolution; a stride of 1 has no pool."""
    layers: list[nn.Module] = [nn.ReLU()] if leading_relu else []  # not in place: the shortcut reads the same maps
    layers += [*separable_layers(inputs, inner), nn.ReLU(inplace=True), *separable_layers(inner, outputs)]
    layers += [AveragePool(stride)] if stride > 1 else []
    return Shortcut(layers, nn.Sequential(Conv(inputs, outputs, (1, 1), stride=stride), batch_norm(outputs)))


def middle_layers(channels: int) -> list[nn.Module]:
    """Build three separable convolutions, each after a ReLU."""
    return [layer for _ in range(3) for layer in (nn.ReLU(), *separable_layers(channels, channels))]


def separable_layers(inputs: int, outputs: int) -> list[nn.Module]:
    """Build a convolution of each channel by itself, one across the channels, and their normalisation."""
    alone = Conv(inputs, inputs, (1, 3), groups=inputs)
    return [alone, Conv(inputs, outputs, (1, 1)), batch_norm(outputs)]


# SPEC 3.6, from the original's history: outputs of 1x1; 3x3 reduced, 3x3; 5x5 reduced, 5x5; projected pool.
INCEPTION_MODULES = {
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
INCEPTION_FEATURES = 1024  # what module 5b gives
# Of the stem, its two pools, and the pools below; reconstructed from the published size.
INCEPTION_STRIDES = (2, 2, 2, 3, 2)
POOLS_BEFORE = {"4a": 3, "5a": 2}
DROPOUT_AFTER = ("4a", "4d")


class Inception(nn.Module):
    """Run GoogLeNet's nine modules over the tokens' projected mixes; tokens stay, features become fewer."""

    def __init__(self, shape: StackShape, mix: Mix, width: int, *, dropout_rate: float = 0.2) -> None:
        super().__init__()
        self.view = MixedAdapter(shape, mix, width)
        self.stem = ReluConv(1, 512, 3, stride=INCEPTION_STRIDES[0])
        self.narrow = ReluConv(512, 256, 1)
        self.wide = ReluConv(256, 128, 3)
        self.blocks = nn.ModuleDict()
        channels = 128
        for name, sizes in INCEPTION_MODULES.items():
            self.blocks[name] = InceptionModule(channels, sizes, dropout_rate if name in DROPOUT_AFTER else 0)
            channels = sizes[0] + sizes[2] + sizes[4] + sizes[5]
        self.pools = nn.ModuleDict({name: MaxPool((3, 3), stride) for name, stride in POOLS_BEFORE.items()})
        self.pool = MaxPool((3, 3), 2)
        self.features = INCEPTION_FEATURES * shrunk(width, *INCEPTION_STRIDES)

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
