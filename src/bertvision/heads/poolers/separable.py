"""Xception's building blocks: separable convolutions, blocks with a shortcut, and the networks made of them."""

from typing import NamedTuple

from torch import Tensor, nn

from bertvision.heads.poolers.convolutions import AveragePool, Conv, Maps, Padding, batch_norm


class Plan(NamedTuple):
    """The size of an Xception."""

    stem_stride: int
    stem_padding: Padding
    blocks: tuple[int, ...]  # channels of the blocks that halve the width
    middle: int  # number of blocks that keep everything
    exit_stride: int


EXIT = 2048  # channels of the last layer


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
