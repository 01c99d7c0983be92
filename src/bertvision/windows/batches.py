"""Windows -> batches: which windows go together, and how they become tensors. Padding never exceeds the longest row."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from bertvision.settings import Config
from bertvision.shapes import Labels, Positions, Segments, TokenIds, TokenMask
from bertvision.windows.packing import BatchShape, Packing, moved, pack
from bertvision.windows.padding import Rows, cut_by_tokens, pad_windows
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


@dataclass(frozen=True)
class Part:
    """Which of a step's windows one of several processes has: every `count`-th, in order of length."""

    place: int = 0
    count: int = 1


WHOLE = Part()


class WindowBatch(NamedTuple):
    """Windows as tensors, padded to the longest of them or filled up to a fixed shape."""

    ids: TokenIds
    mask: TokenMask
    segments: Segments
    starts: Positions
    ends: Positions
    labels: Labels  # what `Window.label` holds, as numbers of its kind
    rows: Rows  # which windows these are
    weights: Float[Tensor, " batch"] | None = None  # of the rows in a step's loss; None: they count alike
    packing: Packing | None = None  # the same tokens without padding
    share: float | None = None  # of a step's loss, where other processes have the rest; None: by the number of windows

    @property
    def size(self) -> int:
        """Count the windows."""
        return len(self.rows)

    @property
    def shape(self) -> BatchShape | None:
        """Return the fixed shape that the batch is filled up to; None: it has only its own."""
        if self.weights is None:
            return None
        rows, width = self.ids.shape
        return BatchShape(rows, width, None if self.packing is None else len(self.packing.ids))

    def share_of(self, num_examples: int) -> float:
        """Return the batch's share in the loss of a step; 1 where its weights hold it already."""
        if self.share is not None:
            return self.share
        return self.size / num_examples if self.weights is None else 1.0

    def to(self, device: torch.device) -> "WindowBatch":
        """Move the tensors to a device without making the host wait."""
        return self._each(lambda tensor: moved(tensor, device))

    def part(self, first: int, stop: int) -> "WindowBatch":
        """Return some of the windows, as views; of a batch that has a shape of its own."""
        assert self.shape is None
        return self._each(lambda tensor: tensor[first:stop])._replace(rows=self.rows[first:stop])

    def first_tokens(self) -> "WindowBatch":
        """Return the first token of every window alone, as what goes with one state per layer."""
        ids, mask, segments = (tensor[:, :1] for tensor in self[:3])
        return self._replace(ids=ids, mask=mask, segments=segments)

    def clone(self) -> "WindowBatch":
        """Return a copy in memory of its own."""
        return self._each(Tensor.clone)

    def tensors(self) -> list[Tensor]:
        """List all tensors, in an order that is the same for batches of one shape."""
        found: list[Tensor] = []
        self._each(lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
        return found

    def _each(self, change: Callable[[Tensor], Tensor]) -> "WindowBatch":
        ids, mask, segments, starts, ends, labels = map(change, self[:6])
        weights = None if self.weights is None else change(self.weights)
        packing = None if self.packing is None else Packing(*map(change, self.packing))
        return WindowBatch(ids, mask, segments, starts, ends, labels, self.rows, weights, packing, self.share)


class EncoderBatch(NamedTuple):
    """Windows that the encoder runs on together, and the steps that heads take on them."""

    steps: list[Rows]
    width: int  # tokens of its longest window, to which all its steps are padded
    done: int = 0  # steps that were taken before
    shares: Sequence[float | None] = ()  # of the steps' losses, where other processes have the rest; empty: all

    @property
    def rows(self) -> Rows:
        """The windows of all steps, also of those that were taken: without them the encoder rounds differently."""
        return np.concatenate(self.steps)

    def share_of(self, step: int) -> float | None:
        """Return the share of a step's loss."""
        return self.shares[step] if self.shares else None


class StepPlan:
    """Which windows make up each step of each epoch, and which of them the encoder runs on together.

    Windows come in groups of `group` neighbours (the endings of one beginning) that are never separated. Of several
    processes each has its `part` of every step; `weights` are those of `loss_weights`.
    """

    def __init__(
        self,
        lengths: npt.NDArray[np.int64],
        batch: BatchConfig,
        seed: int,
        states_batch: BatchConfig | None = None,
        group: int = 1,
        part: Part = WHOLE,
        weights: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self._lengths, self._batch, self._seed, self._states_batch = lengths, batch, seed, states_batch
        self._group, self._part = group, part
        self._weights = np.ones_like(lengths) if weights is None else weights

    def whole(self) -> "StepPlan":
        """Return the plan of a process that has all windows of every step."""
        return StepPlan(self._lengths, self._batch, self._seed, self._states_batch, self._group)

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
                batches.append(self._deal(EncoderBatch(steps, width, first_step)))
            first_step = max(0, first_step - len(steps))
        return batches

    def _deal(self, batch: EncoderBatch) -> EncoderBatch:
        """Keep this process's part of every step."""
        if self._part == WHOLE:
            return batch
        dealt = [deal(rows, self._lengths, self._weights, self._part, self._group) for rows in batch.steps]
        steps = [rows for rows, _ in dealt]
        width = int(self._lengths[np.concatenate(steps)].max())
        return EncoderBatch(steps, width, batch.done, [share for _, share in dealt])

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


def deal(
    rows: Rows, lengths: npt.NDArray[np.int64], weights: npt.NDArray[np.int64], part: Part, group: int = 1
) -> tuple[Rows, float | None]:
    """Return a process's part of a step's windows, and its share of the loss: None where it has them all.

    Parts are alike in number and lengths. One that would be empty borrows the first windows, with a share of 0: every
    process has gradients to add, if only zeros.
    """
    if part == WHOLE:
        return rows, None
    groups = rows.reshape(-1, group)
    own = groups[np.argsort(-lengths[groups].max(axis=1), kind="stable")][part.place :: part.count].reshape(-1)
    if not len(own):
        return groups[0], 0.0
    return own, float(weights[own].sum() / max(1, weights[rows].sum()))


def loss_weights(windows: Sequence[Window]) -> npt.NDArray[np.int64]:
    """Return how much each window counts in the mean loss of a batch: of tags by its tagged tokens, else all alike."""
    tags = (window.label for window in windows)
    return np.array([(each != IGNORED).sum() if isinstance(each, np.ndarray) else 1 for each in tags], np.int64)


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


def collate_to(windows: Sequence[Window], rows: Rows, pad_id: int, shape: BatchShape, num_examples: int) -> WindowBatch:
    """Fill some windows up to a fixed shape; a step sees `num_examples` windows, in this batch and others."""
    batch, extra = collate(windows, rows, pad_id, shape.width), shape.rows - len(rows)
    packing = None if shape.tokens is None else pack([windows[row] for row in rows], shape, pad_id)
    no_label = IGNORED if batch.labels.ndim == 2 and not batch.labels.is_floating_point() else 0
    filled = [
        _fill(tensor, extra, value) for tensor, value in zip(batch[:6], (pad_id, 0, 0, 0, 0, no_label), strict=True)
    ]
    filled[1][batch.size :, 0] = True  # attention over nothing is not a number
    ids, mask, segments, starts, ends, labels = filled
    weights = _fill(torch.full((batch.size,), 1 / num_examples), extra, 0)
    return WindowBatch(ids, mask, segments, starts, ends, labels, rows, weights, packing)


def _fill(tensor: Tensor, extra: int, value: int) -> Tensor:
    """Add rows of one value."""
    shape = (extra, *tensor.shape[1:])
    return torch.from_numpy(np.concatenate([tensor.numpy(), np.full(shape, value, dtype=tensor.numpy().dtype)]))


def labels_of(windows: Sequence[Window]) -> Labels:
    """Return the labels of rows as tensors have them."""
    return _labels(windows, (len(windows), 0))


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
