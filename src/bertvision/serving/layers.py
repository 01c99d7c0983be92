"""Windows and chosen answers -> what each layer adds to their logits."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from bertvision.heads.contributions import layer_contributions
from bertvision.predictions.logits import TokenGrid
from bertvision.serving.answer import LayerPart
from bertvision.serving.served import ServedModel
from bertvision.states.live import states_in_order_of_length
from bertvision.windows.window import Window

Floats = npt.NDArray[np.float32]
Parts = tuple[LayerPart, ...]


class WindowParts(NamedTuple):
    """What each part of a head adds to the start and end logits of windows' tokens; their sum is the logit."""

    names: tuple[str, ...]
    windows: list[Floats]  # of each [part, token, start and end]


def parts_of_windows(served: ServedModel, windows: Sequence[Window]) -> WindowParts:
    """Take the logits of all tokens of windows apart by layers; a pass of the encoder of its own."""
    names: tuple[str, ...] = ()
    found: dict[int, Floats] = {}
    for batch in states_in_order_of_length(served.model.encoder, windows, served.config.answers.tokens, served.compute):
        with torch.no_grad():
            names, parts = layer_contributions(served.model.head, *batch.seen)
        of_rows = parts.float().cpu().numpy()
        for row, window in enumerate(batch.windows.rows.tolist()):
            found[window] = of_rows[row, :, : len(windows[window])]
    return WindowParts(names, [found[window] for window in range(len(windows))])


def layers_of_spans(
    served: ServedModel, windows: Sequence[Window], grid: TokenGrid, spans: npt.NDArray[np.int64]
) -> list[Parts]:
    """Take the scores of spans, [span, first and last token], apart by layers: a second pass over their windows."""
    window_of = np.searchsorted(grid.window_at, spans[:, 0], side="right") - 1
    places = spans - grid.window_at[window_of][:, None]
    wanted, own = np.unique(window_of, return_inverse=True)
    names, parts = parts_of_windows(served, [windows[window] for window in wanted])
    return [
        tuple(map(LayerPart, names, parts[window][:, first, 0].tolist(), parts[window][:, last, 1].tolist()))
        for window, (first, last) in zip(own.tolist(), places.tolist(), strict=True)
    ]
