from itertools import combinations

import numpy as np
import pytest
import torch

from bertvision.windows.batches import collate, collate_to
from bertvision.windows.packing import BatchShape, bucket_shapes, packed_shape, shape_for
from bertvision.windows.plan import lengths_of
from bertvision.windows.window import Window


def make_window(length, label=0):
    ids = np.arange(10, 10 + length, dtype=np.int32)
    return Window(0, ids, 2, np.zeros((length - 2, 2), np.int32), start=1, end=length - 1, label=label)


WINDOWS = [make_window(length) for length in (5, 9, 3, 7, 4)]
LENGTHS = lengths_of(WINDOWS)


def test_one_shape_holds_every_batch():
    batches = [np.array([0, 1]), np.array([2, 3, 4])]
    assert packed_shape(LENGTHS, batches) == BatchShape(rows=3, width=9, tokens=64)


def test_tokens_are_packed_row_after_row_and_find_back():
    shape = BatchShape(rows=4, width=9, tokens=64)
    packing = collate_to(WINDOWS, np.array([3, 2]), 0, shape, 2).packing
    assert packing.ids[:10].tolist() == [*range(10, 17), *range(10, 13)]
    assert not packing.ids[10:].any()
    assert packing.positions[:10].tolist() == [*range(7), *range(3)]
    assert packing.segments[:10].tolist() == [0, 0, 1, 1, 1, 1, 1, 0, 0, 1]
    rows = packing.pad(packing.ids[:, None].float(), 4, 9)[..., 0]
    assert rows[0].tolist() == [*range(10, 17), 0, 0]
    assert rows[1].tolist() == [*range(10, 13), 0, 0, 0, 0, 0, 0]
    assert not rows[2:].any()


@pytest.mark.parametrize("rows", [[0], [3, 2], [0, 1, 2, 3, 4]])
def test_bounds_part_the_rows_and_what_fills_them_up_is_no_wider(rows):
    shape = BatchShape(rows=5, width=9, tokens=64)
    bounds = collate_to(WINDOWS, np.array(rows), 0, shape, len(rows)).packing.bounds
    assert bounds.dtype == torch.int32
    assert len(bounds) == 5 + 8 + 1  # rows, 64 / 9 rows of filling, and the start
    widths = bounds.diff().tolist()
    assert widths[: len(rows)] == LENGTHS[rows].tolist()
    assert max(widths) <= 9
    assert (min(widths), sum(widths)) == (0, 64)


def test_rows_that_fill_a_batch_have_no_weight_and_one_token_to_attend_to():
    batch = collate_to(WINDOWS, np.array([3, 2]), 7, BatchShape(rows=4, width=12), 5)
    plain = collate(WINDOWS, np.array([3, 2]), 7, 12)
    for filled, own in zip(batch[:6], plain[:6], strict=True):
        assert torch.equal(filled[:2], own)
    assert batch.weights.tolist() == pytest.approx([0.2, 0.2, 0, 0])
    assert batch.mask[2:].sum(dim=1).tolist() == [1, 1]
    assert set(batch.ids[2:].flatten().tolist()) == {7}
    assert (batch.size, batch.shape, batch.packing) == (2, BatchShape(4, 12), None)
    assert (batch.share_of(5), plain.share_of(5)) == (1.0, 0.4)


def test_rows_that_fill_a_batch_have_no_tags():
    windows = [
        make_window(4, np.array([-100, 1, 2, -100], np.int32)),
        make_window(3, np.array([-100, 0, -100], np.int32)),
    ]
    labels = collate_to(windows, np.arange(2), 0, BatchShape(rows=3, width=4), 2).labels
    assert labels.tolist() == [[-100, 1, 2, -100], [-100, 0, -100, -100], [-100] * 4]


def cheapest(sizes, most):
    """Try every way to cut the widths."""
    widths = sorted(sizes)
    costs = []
    for count in range(min(most, len(widths))):
        for cuts in combinations(range(1, len(widths)), count):
            ends = [0, *cuts, len(widths)]
            parts = [widths[first:stop] for first, stop in zip(ends[:-1], ends[1:], strict=True)]
            most_rows = [max(max(sizes[width]) for width in part) for part in parts]
            numbers = [sum(len(sizes[width]) for width in part) for part in parts]
            costs.append(sum(r * n * part[-1] for r, n, part in zip(most_rows, numbers, parts, strict=True)))
    return min(costs)


@pytest.mark.parametrize("most", [1, 2, 3, 9])
def test_shapes_are_those_that_compute_the_fewest_tokens(most):
    random = np.random.default_rng(0)
    lengths = np.repeat(random.integers(1, 8, size=30) * 16, 5)  # widths are multiples of 16
    batches = [np.arange(5 * place, 5 * place + random.integers(1, 6)) for place in range(30)]
    shapes = bucket_shapes(lengths, batches, most)
    chosen = [shape_for(int(lengths[rows].max()), shapes) for rows in batches]
    assert len(shapes) <= most
    assert all(shape.rows >= len(rows) for shape, rows in zip(chosen, batches, strict=True))
    sizes = {}
    for rows in batches:
        sizes.setdefault(int(lengths[rows].max()), []).append(len(rows))
    assert sum(shape.rows * shape.width for shape in chosen) == cheapest(sizes, most)
