"""LP + adapter + Xception: a shorter Xception along the features of one view of the layers, for every token."""

from typing import Literal

from pydantic import Field
from torch import nn

from bertvision.heads.poolers.convolutions import dropout, real_tokens, shrunk, spread
from bertvision.heads.poolers.mixed_adapter import Mix, MixedAdapter
from bertvision.heads.poolers.pooler import PoolerBase, Width
from bertvision.heads.poolers.xception import EXIT, Plan, xception_layers
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask

# SPEC 3.6: reconstructed from the published size.
MODIFIED = Plan(stem_stride=5, stem_padding="same", blocks=(128, 256), middle=3, exit_stride=1)
STRIDES = (MODIFIED.stem_stride, *(2 for _ in MODIFIED.blocks), MODIFIED.exit_stride)


class ModifiedXceptionConfig(PoolerBase):
    """What the network sees."""

    kind: Literal["modified_xception"] = "modified_xception"
    mix: Mix = "learned"
    width: Width = 64  # of the adapter between the mix and the network
    dropout: float = Field(0.2, ge=0, lt=1)


class ModifiedXception(nn.Module):
    """Run a shorter Xception over each token's projected mix and keep all that it finds."""

    def __init__(self, shape: StackShape, mix: Mix, width: int, *, dropout_rate: float = 0.2) -> None:
        super().__init__()
        self.view = MixedAdapter(shape, mix, width)
        self.net = nn.Sequential(*xception_layers(1, MODIFIED))
        self.dropout = dropout(dropout_rate)
        self.features = EXIT * shrunk(width, *STRIDES)

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return what the network finds in each real token (zeros for padding); no last state joins it."""
        real = real_tokens(mask)
        items = self.view(states, mask, segments)[real][:, None, None]
        return spread(self.dropout(self.net(items).flatten(start_dim=1)), real, mask)
