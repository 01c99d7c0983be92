"""Some layers, side by side or mixed: the feature-based poolers of BERT's paper (Devlin et al. 2019, table 7)."""

from typing import ClassVar, Literal

from torch import nn

from bertvision.errors import SettingsError
from bertvision.heads.poolers.mixes import LearnedPooling
from bertvision.heads.poolers.pooler import PoolerBase
from bertvision.kinds.kind import Per
from bertvision.shapes import LayerStates, Segments, StackShape, TokenFeatures, TokenMask

Chosen = Literal["embeddings", "second_to_last", "last_four", "blocks"]
SLICES: dict[Chosen, slice] = {
    "embeddings": slice(0, 1),
    "second_to_last": slice(-2, -1),
    "last_four": slice(-4, None),  # fewer where there are fewer
    "blocks": slice(1, None),  # the paper's "all 12 layers": without the embedding output
}


class ChosenLayersConfig(PoolerBase):
    """Which layers, and what becomes of several."""

    kind: Literal["chosen_layers"] = "chosen_layers"
    # The first token's states begin with the pooled one, which is no layer to count from.
    per: ClassVar[tuple[Per, ...]] = ("token",)
    layers: Chosen = "last_four"
    join: Literal["concat", "mix"] = "concat"  # mix: a learned weighted sum


class ChosenLayers(nn.Module):
    """Lay some layers side by side, or mix them by learned weights."""

    def __init__(self, shape: StackShape, layers: Chosen, *, mixed: bool = False) -> None:
        super().__init__()
        self._slice = SLICES[layers]
        self.places = range(shape.layers)[self._slice]  # among the states that it is given
        count = len(self.places)
        if count == 0:
            raise SettingsError(f"there is no {layers} among {shape.layers} state; give more states.layers")
        self.mix = LearnedPooling(count, shape.hidden) if mixed else None
        self.features = shape.hidden if mixed else count * shape.hidden

    def forward(self, states: LayerStates, mask: TokenMask, segments: Segments) -> TokenFeatures:
        """Return the chosen states of every token."""
        chosen = states[:, self._slice]
        if self.mix is not None:
            mixed: TokenFeatures = self.mix(chosen, mask, segments)
            return mixed
        return chosen.transpose(1, 2).flatten(start_dim=2)
