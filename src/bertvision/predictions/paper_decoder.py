"""Logits -> word pieces as the 2020 system read them (SPEC 4.2): start and end apart, the surest window.

It gives no answer where the end stands before the start, may answer with the question or a special token, and lets a
sure "no answer" of one window beat another's answer. It is here so that the papers' tables can be compared with.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.data.example import Pieces
from bertvision.predictions.logits import Logits, TokenGrid


class Peaks(NamedTuple):
    """The highest start, or the highest end, of every window."""

    tokens: npt.NDArray[np.int64]  # of the grid; the first of equals
    log_probabilities: npt.NDArray[np.float64]


def decode_pieces(
    grid: TokenGrid, pieces: npt.NDArray[np.int32], logits: Logits, *, are_log_probabilities: bool = False
) -> list[Pieces]:
    """Answer every question of the grid, in its order, with some of its tokens' word pieces; none are "no answer".

    The papers took an ensemble's largest probabilities as they were, although their sum exceeds one (SPEC 4.4): such
    logits `are_log_probabilities`, all others go through a softmax.
    """
    starts, ends = (_peaks(grid, logits[:, column], are_log_probabilities) for column in (0, 1))
    chosen = _surest_windows(grid, starts.log_probabilities + ends.log_probabilities)
    first, last = starts.tokens[chosen], ends.tokens[chosen]
    # An end at a window's first token leaves nothing: that token alone stands for "no answer".
    stop = np.where(last == grid.window_at[chosen], first, last + 1)
    return [tuple(pieces[one:other].tolist()) for one, other in zip(first.tolist(), stop.tolist(), strict=True)]


def _peaks(grid: TokenGrid, scores: npt.NDArray[np.float32], are_log_probabilities: bool) -> Peaks:
    at, lengths = grid.window_at[:-1], np.diff(grid.window_at)
    highest = np.maximum.reduceat(scores, at)
    everywhere = np.repeat(highest, lengths)
    peaks = np.flatnonzero(scores == everywhere)
    tokens = peaks[np.searchsorted(peaks, at)]
    if are_log_probabilities:
        return Peaks(tokens, highest.astype(np.float64))
    totals = np.add.reduceat(np.exp(np.subtract(scores, everywhere, dtype=np.float64)), at)
    return Peaks(tokens, -np.log(totals))


def _surest_windows(grid: TokenGrid, sureness: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return every question's window of the highest score, the first of equals."""
    order = np.lexsort((-sureness, grid.question_of))
    surest: npt.NDArray[np.int64] = order[np.flatnonzero(np.diff(grid.question_of, prepend=-1))]
    return surest
