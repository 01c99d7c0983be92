"""Windows -> batches: how windows that go together become tensors. Padding never exceeds the longest row."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from bertvision.shapes import Labels, Positions, Segments, TokenIds, TokenMask
from bertvision.windows.packing import BatchShape, Packing, moved, pack
from bertvision.windows.plan import Rows, pad_windows
from bertvision.windows.window import IGNORED, Window


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
