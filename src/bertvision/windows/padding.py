"""Windows -> rows of one length; no torch in here."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.windows.window import Window

Rows = npt.NDArray[np.int64]


class PaddedRows(NamedTuple):
    """Windows side by side, padded at their ends."""

    ids: npt.NDArray[np.int64]
    mask: npt.NDArray[np.bool_]  # true for real tokens
    segments: npt.NDArray[np.int64]


def pad_windows(windows: Sequence[Window], pad_id: int, width: int | None = None) -> PaddedRows:
    """Pad windows to a width, or to the longest of them."""
    shape = (len(windows), width or max(len(window) for window in windows))
    ids = np.full(shape, pad_id, dtype=np.int64)
    mask, segments = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.int64)
    for row, window in enumerate(windows):
        ids[row, : len(window)] = window.ids
        mask[row, : len(window)] = True
        segments[row, window.context_at : len(window)] = 1
    return PaddedRows(ids, mask, segments)


def lengths_of(windows: Sequence[Window]) -> npt.NDArray[np.int64]:
    """Return every window's number of tokens."""
    return np.fromiter((len(window) for window in windows), dtype=np.int64, count=len(windows))


def places_of(window_at: npt.NDArray[np.int64], rows: Rows) -> npt.NDArray[np.int64]:
    """Return where the real tokens of some windows lie among those of all, row after row."""
    return np.concatenate([np.arange(window_at[row], window_at[row + 1]) for row in rows])


def spread(count: int, wanted: int) -> Rows:
    """Return at most so many places, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(wanted, count)).round().astype(np.int64))
