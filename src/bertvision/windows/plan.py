"""Which windows go together, in a step or in prediction: sizes, order, how several processes share them, padding.

No torch in here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from bertvision.settings import Config
from bertvision.windows.window import IGNORED, Window

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


# Windows are sorted by length inside shuffled pools of this many batches: long enough for little padding, short
# enough that a batch's company changes every epoch.
BATCHES_PER_POOL = 64
# The most tokens of a batch of prediction on a CPU, which stay in its caches: 51 windows a second of the default model
# on two cores, 43 in batches of 16,384.
CPU_TOKENS = 4096


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


def plan_in_order_of_length(lengths: npt.NDArray[np.int64], tokens: int) -> list[Rows]:
    """Decide on batches for prediction: the longest first, so that a lack of memory shows at once."""
    by_length = np.argsort(lengths, kind="stable")
    return cut_by_tokens(by_length, lengths, tokens)[::-1]


def cut_by_tokens(order: Rows, lengths: npt.NDArray[np.int64], tokens: int) -> list[Rows]:
    """Cut a list that ascends in length so that rows x longest row stays within the budget (one row always fits)."""
    batches, first = [], 0
    for place, row in enumerate(order):
        if place > first and (place - first + 1) * lengths[row] > tokens:
            batches.append(order[first:place])
            first = place
    return [*batches, order[first:]] if len(order) else []


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


def _members(groups: Rows, group: int) -> Rows:
    """Return the windows of some groups."""
    return (groups[:, None] * group + np.arange(group)).reshape(-1)


def _cut_every(order: Rows, size: int) -> list[Rows]:
    return [order[first : first + size] for first in range(0, len(order), size)]
