"""How long contexts are in an encoder's own tokens, from where a model's windows lie on them."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from bertvision.predictions.logits import TokenGrid

Offsets = npt.NDArray[np.int32]  # [token, 2] characters of the context


def count_context_pieces(grid: TokenGrid) -> dict[str, int]:
    """Count the tokens of every question's context, those that several windows share once."""
    counts = np.zeros(len(grid.question_ids), dtype=np.int64)
    before, asked = np.zeros((0, 2), np.int32), -1
    for question, (first, stop) in zip(grid.question_of.tolist(), pairwise(grid.window_at.tolist()), strict=True):
        window = grid.offsets[first:stop]
        context = window[window[:, 0] >= 0]
        counts[question] += len(context) - (_shared(before, context) if question == asked else 0)
        before, asked = context, question
    return dict(zip(grid.question_ids, counts.tolist(), strict=True))


def _shared(before: Offsets, after: Offsets) -> int:
    """Count the tokens that end one window and begin the next; pieces of one character have the same offsets."""
    starts = np.flatnonzero((before == after[0]).all(axis=1)).tolist()
    overlaps = (len(before) - start for start in starts)
    return next((each for each in overlaps if np.array_equal(before[-each:], after[:each])), 0)
