"""Windows -> batches: which windows go together, and how they become tensors. Padding never exceeds the longest row."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator

from bertvision.features.windows import Window
from bertvision.settings import Config
from bertvision.shapes import Positions, Segments, TokenIds, TokenMask

Rows = npt.NDArray[np.int64]
# Windows are sorted by length inside shuffled pools of this many batches: long enough for little padding, short
# enough that a batch's company changes every epoch.
BATCHES_PER_POOL = 64


class BatchConfig(Config):
    """A step's size: `{tokens: n}` (padding counted, lengths bucketed) or `{windows: n}` (as in the papers)."""

    tokens: int | None = Field(None, ge=1)
    windows: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "BatchConfig":
        if (self.tokens is None) == (self.windows is None):
            raise ValueError("give either `tokens` or `windows`, such as batch: {tokens: 16384}")
        return self


class WindowBatch(NamedTuple):
    """Windows as tensors, padded to the longest of them."""

    ids: TokenIds
    mask: TokenMask
    segments: Segments
    starts: Positions
    ends: Positions
    rows: Rows  # which windows these are

    @property
    def size(self) -> int:
        """Count the windows."""
        return len(self.rows)

    def to(self, device: torch.device) -> "WindowBatch":
        """Move the tensors to a device."""
        ids, mask, segments, starts, ends = (tensor.to(device, non_blocking=True) for tensor in self[:5])
        return WindowBatch(ids, mask, segments, starts, ends, self.rows)


def plan_epoch(lengths: npt.NDArray[np.int64], config: BatchConfig, seed: int, epoch: int) -> list[Rows]:
    """Decide which windows make up each step of an epoch, shuffled from the seed."""
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(lengths))
    if config.windows is not None:
        return _cut_every(order, config.windows)
    assert config.tokens is not None
    pool = max(1, round(BATCHES_PER_POOL * config.tokens / max(1.0, float(lengths.mean()))))
    batches = []
    for part in _cut_every(order, pool):
        batches += _cut_by_tokens(part[np.argsort(lengths[part], kind="stable")], lengths, config.tokens)
    return [batches[place] for place in random.permutation(len(batches))]


def plan_in_order_of_length(lengths: npt.NDArray[np.int64], tokens: int) -> list[Rows]:
    """Decide on batches for prediction: the longest first, so that a lack of memory shows at once."""
    by_length = np.argsort(lengths, kind="stable")
    return _cut_by_tokens(by_length, lengths, tokens)[::-1]


def padding_share(lengths: npt.NDArray[np.int64], batches: Sequence[Rows]) -> float:
    """Tell which share of the computed tokens is padding."""
    computed = sum(int(lengths[rows].max()) * len(rows) for rows in batches)
    return 1 - int(lengths.sum()) / computed


def collate(windows: Sequence[Window], rows: Rows, pad_id: int) -> WindowBatch:
    """Pad some windows to the longest of them."""
    chosen = [windows[row] for row in rows]
    shape = (len(chosen), max(len(window) for window in chosen))
    ids = np.full(shape, pad_id, dtype=np.int64)
    mask, segments = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.int64)
    for row, window in enumerate(chosen):
        ids[row, : len(window)] = window.ids
        mask[row, : len(window)] = True
        segments[row, window.context_at : len(window)] = 1
    starts = torch.tensor([window.start for window in chosen])
    ends = torch.tensor([window.end for window in chosen])
    return WindowBatch(torch.from_numpy(ids), torch.from_numpy(mask), torch.from_numpy(segments), starts, ends, rows)


def lengths_of(windows: Sequence[Window]) -> npt.NDArray[np.int64]:
    """Give every window's number of tokens."""
    return np.fromiter((len(window) for window in windows), dtype=np.int64, count=len(windows))


def _cut_every(order: Rows, size: int) -> list[Rows]:
    return [order[first : first + size] for first in range(0, len(order), size)]


def _cut_by_tokens(order: Rows, lengths: npt.NDArray[np.int64], tokens: int) -> list[Rows]:
    """Cut a list that ascends in length so that rows x longest row stays within the budget (one row always fits)."""
    batches, first = [], 0
    for place, row in enumerate(order):
        if place > first and (place - first + 1) * lengths[row] > tokens:
            batches.append(order[first:place])
            first = place
    return [*batches, order[first:]] if len(order) else []
