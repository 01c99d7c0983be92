"""The papers' classification heads of 2020: Xception, whole or cut short, on one token with the layers as channels."""

from typing import ClassVar, Literal

import torch
from torch import nn

from bertvision.heads.poolers.convolutions import real_tokens, spread
from bertvision.heads.poolers.pooler import PoolerBase
from bertvision.heads.poolers.separable import EXIT, Plan, halving_block, stem_layers, xception_layers
from bertvision.kinds.kind import Per
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask

# SPEC 3.5. The pools average, as in the code; a saved summary of the original has max pools in the last two blocks.
FULL = Plan(stem_stride=3, stem_padding="valid", blocks=(128, 256, 728), middle=8, exit_stride=2)
ABBREVIATED = 512  # channels of the one block that is left
SMALLEST = 9  # the width of which the stem, which pads nothing, leaves 1


class XceptionConfig(PoolerBase):
    """How much of Xception there is, and whether the last state joins it."""

    per: ClassVar[tuple[Per, ...]] = ("row",)
    kind: Literal["xception"] = "xception"
    size: Literal["abbreviated", "full"] = "abbreviated"
    skip: bool = False


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


def abbreviated_layers(channels: int) -> list[nn.Module]:
    """Build the stem and one block (SPEC 3.4)."""
    return [*stem_layers(channels, (64, 128), 3, "valid"), halving_block(128, 256, ABBREVIATED, leading_relu=False)]
