"""Batches of few fixed shapes, so that a GPU can replay a step as one graph; and their tokens packed without padding.

Rows that only fill a batch have no weight in its loss.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int, Int32
from torch import Tensor

from bertvision.shapes import TokenFeatures
from bertvision.windows.plan import Rows, lengths_of
from bertvision.windows.window import Window

# Sizes are multiples of these: matrix products of others are slower, and fewer widths are quickly searched.
TOKENS_MULTIPLE, WIDTH_MULTIPLE = 64, 16


class BatchShape(NamedTuple):
    """How many rows a batch is filled up to and how wide they are; and how many tokens it has where it is packed."""

    rows: int
    width: int
    tokens: int | None = None

    @property
    def num_bounds(self) -> int:
        """Count the bounds of packed rows; what fills the tokens up are rows that are no wider than the others."""
        assert self.tokens is not None
        return self.rows + math.ceil(self.tokens / self.width) + 1


class Packing(NamedTuple):
    """A batch's real tokens, row after row, filled up to a fixed number."""

    ids: Int[Tensor, " token"]
    segments: Int[Tensor, " token"]
    positions: Int[Tensor, " token"]  # within the row
    places: Int[Tensor, " token"]  # among the tokens of the padded rows; of what fills the batch: behind them all
    bounds: Int32[Tensor, " bound"]  # where rows begin and end, as attention over rows of many lengths takes them

    @property
    def shape(self) -> tuple[int, int]:
        """Count the tokens and the bounds, which all tensors' sizes follow from."""
        return len(self.ids), len(self.bounds)

    def tensors(self) -> list[Tensor]:
        """List all tensors."""
        return list(self)

    def clone(self) -> "Packing":
        """Return a copy in memory of its own."""
        return Packing(*(tensor.clone() for tensor in self))

    def to(self, device: torch.device) -> "Packing":
        """Move the tensors to a device; a GPU takes them from pinned memory, without making the host wait."""
        return Packing(*(moved(tensor, device) for tensor in self))

    def pad(self, values: Float[Tensor, "packed feature"], rows: int, width: int) -> TokenFeatures:
        """Put values of the tokens where padded rows have them; padding is 0."""
        laid_out = values.new_zeros(rows * width + 1, values.shape[1]).index_copy(0, self.places, values)
        return laid_out[:-1].view(rows, width, -1)


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor to a device; a GPU takes it from pinned memory, without making the host wait."""
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)


def packed_shape(lengths: npt.NDArray[np.int64], batches: Sequence[Rows]) -> BatchShape:
    """Return the one shape that holds each of the batches, packed."""
    tokens = max(int(lengths[rows].sum()) for rows in batches)
    width = max(int(lengths[rows].max()) for rows in batches)
    return BatchShape(max(len(rows) for rows in batches), width, _round_up(tokens, TOKENS_MULTIPLE))


def cut_in_order(lengths: npt.NDArray[np.int64], tokens: int, rows: int | None = None) -> list[Rows]:
    """Cut rows, as they stand, into batches of at most so many real tokens (one row always fits), and so many rows."""
    batches, first, room = [], 0, tokens
    for row, length in enumerate(lengths.tolist()):
        if row > first and (length > room or row - first == rows):
            batches.append(np.arange(first, row))
            first, room = row, tokens
        room -= length
    return [*batches, np.arange(first, len(lengths))]


def bucket_shapes(lengths: npt.NDArray[np.int64], batches: Sequence[Rows], most: int) -> list[BatchShape]:
    """Return at most so many padded shapes that hold all batches with the fewest tokens computed, the narrowest first.

    Every batch belongs into the narrowest shape that is wide enough (`shape_for`).
    """
    sizes: dict[int, list[int]] = {}  # of the batches, by width
    for rows in batches:
        sizes.setdefault(_round_up(int(lengths[rows].max()), WIDTH_MULTIPLE), []).append(len(rows))
    widths = sorted(sizes)

    def shape_of(first: int, stop: int) -> BatchShape:
        return BatchShape(max(max(sizes[width]) for width in widths[first:stop]), widths[stop - 1])

    def cost(first: int, stop: int) -> int:
        shape = shape_of(first, stop)
        return shape.rows * shape.width * sum(len(sizes[width]) for width in widths[first:stop])

    # The cheapest way to cut the first n widths into so many shapes: what it costs, and where each shape begins.
    best: dict[int, tuple[int, tuple[int, ...]]] = {stop: (cost(0, stop), (0,)) for stop in range(1, len(widths) + 1)}
    for _ in range(most - 1):
        with_fewer = dict(best)
        for stop in with_fewer:
            ways = [(with_fewer[cut][0] + cost(cut, stop), (*with_fewer[cut][1], cut)) for cut in range(1, stop)]
            best[stop] = min([with_fewer[stop], *ways])
    cuts = [*best[len(widths)][1], len(widths)]
    return [shape_of(first, stop) for first, stop in zip(cuts[:-1], cuts[1:], strict=True)]


def shape_for(width: int, shapes: Sequence[BatchShape]) -> BatchShape:
    """Return the first of some shapes, in order of their widths, that is wide enough."""
    return next(shape for shape in shapes if shape.width >= width)


def pack(windows: Sequence[Window], shape: BatchShape, pad_id: int) -> Packing:
    """Pack the tokens of windows."""
    lengths = lengths_of(windows)
    positions = places_in(lengths, shape.width) % shape.width
    segments = positions >= np.repeat([window.context_at for window in windows], lengths)
    return pack_tokens(np.concatenate([window.ids for window in windows]), segments, lengths, shape, pad_id)


def pack_tokens(
    ids: npt.NDArray[Any], segments: npt.NDArray[Any], lengths: npt.NDArray[np.int64], shape: BatchShape, pad_id: int
) -> Packing:
    """Fill the tokens of rows of these lengths, which lie one behind the other, up to a shape."""
    assert shape.tokens is not None
    places = places_in(lengths, shape.width)
    ends = np.cumsum(lengths)
    fillers = np.arange(ends[-1], shape.tokens, shape.width)  # rows of nothing but padding
    bounds = np.concatenate([[0], ends, fillers[1:]])
    return Packing(
        ids=filled(ids, shape.tokens, pad_id),
        segments=filled(segments, shape.tokens, 0),
        positions=filled(places % shape.width, shape.tokens, 0),
        places=filled(places, shape.tokens, shape.rows * shape.width),
        bounds=filled(bounds, shape.num_bounds, shape.tokens).to(torch.int32),
    )


def places_in(lengths: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
    """Return where the tokens of rows lie among those of the same rows padded to a width."""
    before = np.cumsum(lengths) - lengths
    shifts: npt.NDArray[np.int64] = np.repeat(np.arange(len(lengths)) * width - before, lengths)
    return np.arange(len(shifts)) + shifts


def filled(values: npt.NDArray[Any], size: int, value: int) -> Tensor:
    """Fill whole numbers up to a size with a value."""
    whole = np.full(size, value, dtype=np.int64)
    whole[: len(values)] = values
    return torch.from_numpy(whole)


def _round_up(size: int, multiple: int) -> int:
    return math.ceil(size / multiple) * multiple
