"""Windows -> batches: which windows go together, and how they become tensors. Padding never exceeds the longest row."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator

from bertvision.settings import Config
from bertvision.shapes import Labels, Positions, Segments, TokenIds, TokenMask
from bertvision.windows.padding import Rows as Rows  # these three live there because they need no torch
from bertvision.windows.padding import cut_by_tokens, pad_windows
from bertvision.windows.padding import lengths_of as lengths_of
from bertvision.windows.padding import plan_in_order_of_length as plan_in_order_of_length
from bertvision.windows.window import IGNORED, Window

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
    labels: Labels  # what `Window.label` holds, as numbers of its kind
    rows: Rows  # which windows these are

    @property
    def size(self) -> int:
        """Count the windows."""
        return len(self.rows)

    def to(self, device: torch.device) -> "WindowBatch":
        """Move the tensors to a device; a GPU takes them from pinned memory, without making the host wait."""
        tensors = [tensor.pin_memory() if device.type == "cuda" else tensor for tensor in self[:6]]
        ids, mask, segments, starts, ends, labels = (tensor.to(device, non_blocking=True) for tensor in tensors)
        return WindowBatch(ids, mask, segments, starts, ends, labels, self.rows)

    def part(self, first: int, stop: int) -> "WindowBatch":
        """Return some of the windows, as views."""
        ids, mask, segments, starts, ends, labels = (tensor[first:stop] for tensor in self[:6])
        return WindowBatch(ids, mask, segments, starts, ends, labels, self.rows[first:stop])

    def first_tokens(self) -> "WindowBatch":
        """Return the first token of every window alone, as what goes with its CLS states."""
        ids, mask, segments = (tensor[:, :1] for tensor in self[:3])
        return self._replace(ids=ids, mask=mask, segments=segments)


class EncoderBatch(NamedTuple):
    """Windows that the encoder runs on together, and the steps that heads take on them."""

    steps: list[Rows]
    width: int  # tokens of its longest window, to which all its steps are padded
    done: int = 0  # steps that were taken before

    @property
    def rows(self) -> Rows:
        """The windows of all steps, also of those that were taken: without them the encoder rounds differently."""
        return np.concatenate(self.steps)


class StepPlan:
    """Which windows make up each step of each epoch, and which of them the encoder runs on together.

    Windows come in groups of `group` neighbours (the endings of one beginning) that are never separated.
    """

    def __init__(
        self,
        lengths: npt.NDArray[np.int64],
        batch: BatchConfig,
        seed: int,
        states_batch: BatchConfig | None = None,
        group: int = 1,
    ) -> None:
        self._lengths, self._batch, self._seed, self._states_batch = lengths, batch, seed, states_batch
        self._group = group

    def num_steps(self, epoch: int) -> int:
        """Count the steps of an epoch."""
        return sum(len(batch.steps) for batch in self.epoch(epoch))

    def epoch(self, number: int, first_step: int = 0) -> list[EncoderBatch]:
        """Return the encoder's batches of an epoch that hold a step from `first_step` on."""
        random = np.random.default_rng([self._seed, number, 1])  # a stream beside that of `plan_epoch`
        batches = []
        for rows in plan_epoch(self._lengths, self._states_batch or self._batch, self._seed, number, self._group):
            width = int(self._lengths[rows].max())
            steps = [rows] if self._states_batch is None else self._cut(rows, width, random)
            if first_step < len(steps):
                batches.append(EncoderBatch(steps, width, first_step))
            first_step = max(0, first_step - len(steps))
        return batches

    def _cut(self, rows: Rows, width: int, random: np.random.Generator) -> list[Rows]:
        """Cut the encoder's batch into steps of equal size: a remainder of one window would be a step of its own.

        So a step of `{tokens: n}` may be larger than n by less than one window (or group).
        """
        groups = random.permutation(rows[:: self._group] // self._group)
        if self._batch.windows is not None:
            steps = math.ceil(len(groups) / max(1, self._batch.windows // self._group))
        else:
            assert self._batch.tokens is not None
            steps = math.ceil(len(rows) * width / self._batch.tokens)
        return [_members(part, self._group) for part in np.array_split(groups, min(steps, len(groups)))]


def plan_epoch(
    lengths: npt.NDArray[np.int64], config: BatchConfig, seed: int, epoch: int, group: int = 1
) -> list[Rows]:
    """Decide which windows make up each step of an epoch, shuffled from the seed; groups of neighbours stay whole."""
    random = np.random.default_rng([seed, epoch])
    costs = lengths.reshape(-1, group).max(axis=1) * group  # of a group's windows, padded to their longest
    order = random.permutation(len(costs))
    if config.windows is not None:
        return [_members(part, group) for part in _cut_every(order, max(1, config.windows // group))]
    assert config.tokens is not None
    pool = max(1, round(BATCHES_PER_POOL * config.tokens / max(1.0, float(costs.mean()))))
    batches = []
    for part in _cut_every(order, pool):
        batches += cut_by_tokens(part[np.argsort(costs[part], kind="stable")], costs, config.tokens)
    return [_members(batches[place], group) for place in random.permutation(len(batches))]


def padding_share(lengths: npt.NDArray[np.int64], batches: Sequence[Rows]) -> float:
    """Return which share of the computed tokens is padding."""
    computed = sum(int(lengths[rows].max()) * len(rows) for rows in batches)
    return 1 - int(lengths.sum()) / computed


def collate(windows: Sequence[Window], rows: Rows, pad_id: int, width: int | None = None) -> WindowBatch:
    """Pad some windows to a width, or to the longest of them."""
    chosen = [windows[row] for row in rows]
    padded = pad_windows(chosen, pad_id, width)
    starts, ends = torch.tensor([[window.start, window.end] for window in chosen]).T.contiguous()
    ids, mask, segments = map(torch.from_numpy, padded)
    return WindowBatch(ids, mask, segments, starts, ends, _labels(chosen, padded.ids.shape), rows)


def _labels(windows: Sequence[Window], shape: tuple[int, int]) -> Labels:
    """Return the labels of windows of one kind: classes int64, numbers and 0 or 1 per label float32, tags int64."""
    values = [window.label for window in windows]
    if not isinstance(values[0], np.ndarray):
        return torch.tensor(values, dtype=torch.int64 if isinstance(values[0], int) else torch.float32)
    labels = np.full(shape, IGNORED, dtype=np.int64)
    for row, tags in enumerate(values):
        assert isinstance(tags, np.ndarray)
        labels[row, : len(tags)] = tags
    return torch.from_numpy(labels)


def _members(groups: Rows, group: int) -> Rows:
    """Return the windows of some groups."""
    return (groups[:, None] * group + np.arange(group)).reshape(-1)


def _cut_every(order: Rows, size: int) -> list[Rows]:
    return [order[first : first + size] for first in range(0, len(order), size)]
