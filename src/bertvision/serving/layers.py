"""Chosen answers -> what each layer adds to their logits."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from bertvision.activations.live import states_in_order_of_length
from bertvision.features.windows import Window
from bertvision.heads.contributions import layer_contributions
from bertvision.predictions.logits import TokenGrid
from bertvision.serving.answer import LayerPart
from bertvision.serving.served import ServedModel

Parts = tuple[LayerPart, ...]


def layers_of_spans(
    served: ServedModel, windows: Sequence[Window], grid: TokenGrid, spans: npt.NDArray[np.int64]
) -> list[Parts]:
    """Take the scores of spans, [span, first and last token], apart by layers: a second pass over their windows."""
    window_of = np.searchsorted(grid.window_at, spans[:, 0], side="right") - 1
    places = spans - grid.window_at[window_of][:, None]
    wanted, own = np.unique(window_of, return_inverse=True)
    chosen, tokens = [windows[window] for window in wanted], served.config.answers.tokens
    found: dict[int, Parts] = {}
    for batch in states_in_order_of_length(served.model.encoder, chosen, tokens, served.compute):
        with torch.no_grad():
            names, parts = layer_contributions(served.model.head, *batch.seen)
        for row, window in enumerate(batch.windows.rows.tolist()):
            for span in np.flatnonzero(own == window).tolist():
                start, end = places[span].tolist()
                of_both = parts[row, :, start, 0].tolist(), parts[row, :, end, 1].tolist()
                found[span] = tuple(map(LayerPart, names, *of_both))
    return [found[span] for span in range(len(spans))]
