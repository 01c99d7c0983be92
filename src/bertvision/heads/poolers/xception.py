"""The papers' Xceptions of 2020, along the features of each token.

For classification, whole or cut short, with the layers as channels; for questions, shorter, on one view of the layers
(LP + adapter + Xception). Below the poolers stand Xception's building blocks: separable convolutions, blocks with a
shortcut, and the networks.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from bertvision.heads.poolers.adapter import MixedAdapter
from bertvision.heads.poolers.config import Mix
from bertvision.heads.poolers.convolutions import (
    AveragePool,
    Conv,
    Maps,
    Padding,
    batch_norm,
    dropout,
    real_tokens,
    shrunk,
    spread,
)
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
