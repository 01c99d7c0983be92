from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.errors import SettingsError
from bertvision.settings import validate
from bertvision.windows.batches import collate
from bertvision.windows.plan import (
    BATCHES_PER_POOL,
    WHOLE,
    BatchConfig,
    Part,
    StepPlan,
    deal,
    lengths_of,
    loss_weights,
    padding_share,
    plan_epoch,
    plan_in_order_of_length,
)
from bertvision.windows.window import Window

TOKENS = BatchConfig(tokens=16384)
length_lists = st.lists(st.integers(3, 384), min_size=1, max_size=200).map(lambda each: np.array(each, dtype=np.int64))
quickly = settings(max_examples=60, deadline=None, derandomize=True)


@pytest.fixture(scope="module")
def squad_lengths():
    """Twenty thousand window lengths like SQuAD's: a mean of 171 tokens, skewed, at most 384."""
    spread = 0.45
    drawn = np.random.default_rng(0).lognormal(np.log(171) - spread**2 / 2, spread, 20_000)
    lengths = drawn.round().clip(20, 384).astype(np.int64)
    assert 165 < lengths.mean() < 175
    return lengths


def make_window(length, context_at=3, start=0, end=0, first_id=100):
    ids = np.arange(first_id, first_id + length, dtype=np.int32)
    return Window(0, ids, context_at, np.zeros((length - context_at - 1, 2), dtype=np.int32), start, end)


def padded_tokens(lengths, rows):
    return max(lengths[row] for row in rows) * len(rows)


# Which windows go together


@pytest.mark.parametrize("config", [TOKENS, BatchConfig(tokens=500), BatchConfig(windows=4), BatchConfig(windows=7)])
def test_an_epoch_shows_every_window_exactly_once(squad_lengths, config):
    plan = plan_epoch(squad_lengths, config, seed=1, epoch=0)
    assert sorted(row for rows in plan for row in rows.tolist()) == list(range(len(squad_lengths)))


@quickly
@given(lengths=length_lists, tokens=st.integers(1, 3000), seed=st.integers(0, 5))
def test_a_step_keeps_to_its_tokens_unless_one_window_is_longer(lengths, tokens, seed):
    for plan in (plan_epoch(lengths, BatchConfig(tokens=tokens), seed, 0), plan_in_order_of_length(lengths, tokens)):
        assert sorted(row for rows in plan for row in rows.tolist()) == list(range(len(lengths)))
        assert all(len(rows) == 1 or padded_tokens(lengths, rows) <= tokens for rows in plan)


def test_steps_of_squads_lengths_are_nearly_full_and_hold_little_padding(squad_lengths):
    plan = plan_epoch(squad_lengths, TOKENS, seed=1, epoch=0)
    computed = [padded_tokens(squad_lengths, rows) for rows in plan]
    assert max(computed) <= 16384
    assert 1 - squad_lengths.sum() / sum(computed) < 0.05
    assert np.mean(computed) > 0.9 * 16384


def test_padding_share_is_what_was_computed_beyond_the_windows():
    lengths = np.array([10, 20, 30, 40])
    plan = [np.array([0, 1]), np.array([2, 3])]
    assert padding_share(lengths, plan) == pytest.approx(1 - (10 + 20 + 30 + 40) / (2 * 20 + 2 * 40))


@pytest.mark.parametrize("config", [TOKENS, BatchConfig(windows=32)])
def test_a_seed_and_an_epoch_fix_the_plan(squad_lengths, config):
    def plan(seed, epoch):
        return [rows.tolist() for rows in plan_epoch(squad_lengths, config, seed, epoch)]

    assert plan(1, 0) == plan(1, 0)
    assert plan(1, 0) != plan(1, 1)
    assert plan(1, 0) != plan(2, 0)
    assert plan(1, 2) != plan(2, 1)


def test_a_windows_company_changes_from_epoch_to_epoch(squad_lengths):
    def company(epoch):
        return next(set(rows.tolist()) for rows in plan_epoch(squad_lengths, TOKENS, 1, epoch) if 0 in rows)

    first, second = company(0), company(1)
    assert len(first & second) < 0.75 * len(first)


def test_the_lengths_of_steps_do_not_rise_over_an_epoch(squad_lengths):
    means = [squad_lengths[rows].mean() for rows in plan_epoch(squad_lengths, TOKENS, seed=1, epoch=0)]
    assert np.mean(np.diff(means) > 0) == pytest.approx(0.5, abs=0.1)


def test_windows_are_sorted_in_pools_and_not_as_a_whole():
    lengths = np.random.default_rng(0).permutation(np.arange(100, 5100))  # every length once
    pool = round(BATCHES_PER_POOL * 20_000 / lengths.mean())
    plan = plan_epoch(lengths, BatchConfig(tokens=20_000), seed=1, epoch=0)
    gaps = np.concatenate([np.diff(lengths[rows]) for rows in plan])
    assert gaps.min() > 0
    assert gaps.mean() == pytest.approx(5000 / pool, rel=0.3)  # neighbours in the whole would lie 1 apart


@pytest.mark.parametrize(("count", "sizes"), [(12, [4, 4, 4]), (13, [4, 4, 4, 1]), (3, [3])])
def test_four_windows_a_step_are_fours_and_a_rest(count, sizes):
    plan = plan_epoch(np.full(count, 100), BatchConfig(windows=4), seed=1, epoch=0)
    assert [len(rows) for rows in plan] == sizes


def test_fixed_numbers_of_windows_are_not_sorted_by_length(squad_lengths):
    plan = plan_epoch(squad_lengths, BatchConfig(windows=16), seed=1, epoch=0)
    spread = np.mean([squad_lengths[rows].std() for rows in plan])
    assert spread > 0.85 * squad_lengths.std()


def test_prediction_begins_with_the_longest_windows(squad_lengths):
    plan = plan_in_order_of_length(squad_lengths, 16384)
    longest = [int(squad_lengths[rows].max()) for rows in plan]
    assert longest == sorted(longest, reverse=True)
    assert padding_share(squad_lengths, plan) < 0.01


# Which steps heads take on what the encoder runs on at once


def steps_of(plan, epoch=0, first_step=0):
    return [rows.tolist() for batch in plan.epoch(epoch, first_step) for rows in batch.steps[batch.done :]]


@pytest.mark.parametrize("config", [TOKENS, BatchConfig(windows=7)])
def test_without_batches_of_its_own_the_encoder_runs_on_what_heads_step_on(squad_lengths, config):
    plan = StepPlan(squad_lengths, config, seed=3)
    assert steps_of(plan, epoch=2) == [rows.tolist() for rows in plan_epoch(squad_lengths, config, 3, 2)]
    assert all(batch.width == squad_lengths[batch.rows].max() for batch in plan.epoch(2))


@pytest.mark.parametrize("batch", [BatchConfig(tokens=2048), BatchConfig(tokens=100), BatchConfig(windows=16)])
def test_steps_are_parts_of_the_encoders_batches(squad_lengths, batch):
    plan = StepPlan(squad_lengths, batch, seed=3, states_batch=TOKENS)
    planned, whole = plan.epoch(1), plan_epoch(squad_lengths, TOKENS, 3, 1)
    assert [sorted(each.rows) for each in planned] == [sorted(rows) for rows in whole]
    for each in planned:
        longest = squad_lengths[each.rows].max()
        sizes = [len(rows) for rows in each.steps]
        assert each.width == longest
        assert max(sizes) - min(sizes) <= 1  # no step is a remainder
        if batch.windows:
            assert max(sizes) <= 16
            assert len(sizes) == -(-len(each.rows) // 16)
        else:
            assert (max(sizes) - 1) * longest < batch.tokens
            assert len(sizes) == min(-(-len(each.rows) * longest // batch.tokens), len(each.rows))
            assert min(sizes) > 0
    assert plan.num_steps(1) == sum(len(each.steps) for each in planned)


def test_a_step_takes_from_all_lengths_of_the_encoders_batch_and_others_in_the_next_epoch():
    lengths = np.arange(100, 200)
    plan = StepPlan(lengths, BatchConfig(windows=10), seed=3, states_batch=BatchConfig(tokens=100 * 199))
    assert len(plan.epoch(0)) == 1
    assert all(np.ptp(rows) > 30 for rows in steps_of(plan))  # ten neighbours would lie within 10
    assert steps_of(plan) == steps_of(plan) != steps_of(plan, epoch=1)
    other = StepPlan(lengths, BatchConfig(windows=10), seed=4, states_batch=BatchConfig(tokens=100 * 199))
    assert steps_of(plan) != steps_of(other)


@pytest.mark.parametrize("states_batch", [None, BatchConfig(tokens=4096)])
def test_an_epoch_goes_on_from_any_step(states_batch):
    lengths = np.random.default_rng(0).integers(20, 384, 100)
    plan = StepPlan(lengths, BatchConfig(tokens=1024), seed=3, states_batch=states_batch)
    whole = steps_of(plan)
    assert len(whole) == plan.num_steps(0) > len(plan.epoch(0)) - (states_batch is None)
    for first in range(len(whole) + 1):
        assert steps_of(plan, first_step=first) == whole[first:]
        assert all(
            batch.rows.tolist() in [each.rows.tolist() for each in plan.epoch(0)] for batch in plan.epoch(0, first)
        )


# Windows that are judged together


def groups_in(rows, group):
    """Check that rows are whole groups, in order, and name them."""
    blocks = np.asarray(rows).reshape(-1, group)
    assert (blocks == blocks[:, :1] + np.arange(group)).all()
    assert not (blocks[:, 0] % group).any()
    return (blocks[:, 0] // group).tolist()


@quickly
@given(
    lengths=st.lists(st.integers(3, 60), min_size=1, max_size=60),
    group=st.integers(2, 5),
    size=st.integers(1, 400),
    by=st.sampled_from(["tokens", "windows"]),
    states_tokens=st.none() | st.integers(1, 2000),
)
def test_groups_are_never_separated(lengths, group, size, by, states_tokens):
    lengths = np.array([length + place for length in lengths for place in range(group)])
    states_batch = None if states_tokens is None else BatchConfig(tokens=states_tokens)
    plan = StepPlan(lengths, BatchConfig(**{by: size}), seed=1, states_batch=states_batch, group=group)
    steps = steps_of(plan, epoch=1)
    found = [number for rows in steps for number in groups_in(rows, group)]
    assert sorted(found) == list(range(len(lengths) // group))
    assert all(rows for rows in steps)
    for rows in steps:
        if by == "windows":
            assert len(rows) <= max(size, group)
        elif states_batch is None:
            assert len(rows) == group or padded_tokens(lengths, rows) <= size


def test_a_budget_of_tokens_counts_all_windows_of_a_group():
    plan = plan_epoch(np.full(40, 10), BatchConfig(tokens=80), seed=1, epoch=0, group=4)
    assert [len(rows) for rows in plan] == [8] * 5


def test_a_groups_company_changes_from_epoch_to_epoch():
    lengths = np.random.default_rng(0).integers(5, 40, 400)
    one, other = (
        [groups_in(rows, 4) for rows in plan_epoch(lengths, BatchConfig(windows=16), 1, epoch, 4)] for epoch in (0, 1)
    )
    assert one != other
    assert all(len(groups) == 4 for groups in one)


def test_no_windows_make_no_batches():
    assert plan_in_order_of_length(np.array([], dtype=np.int64), 16384) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "either `tokens` or `windows`"),
        ({"tokens": 1, "windows": 1}, "either `tokens` or `windows`"),
        ({"tokens": 0}, "tokens"),
        ({"windows": 0}, "windows"),
        ({"windows": 1.5}, "windows"),
    ],
)
def test_a_step_has_one_size(settings, message):
    with pytest.raises(SettingsError, match=message):
        validate(BatchConfig, settings, "test")


# How they become tensors


def test_windows_are_padded_to_the_longest_of_the_chosen():
    windows = [make_window(6, context_at=3), make_window(9, context_at=5), make_window(50)]
    batch = collate(windows, np.array([0, 1]), pad_id=7)
    assert batch.ids.tolist() == [[100, 101, 102, 103, 104, 105, 7, 7, 7], list(range(100, 109))]
    assert batch.mask.tolist() == [[True] * 6 + [False] * 3, [True] * 9]
    assert batch.segments.tolist() == [[0] * 3 + [1] * 3 + [0] * 3, [0] * 5 + [1] * 4]
    assert batch.size == 2


@pytest.mark.parametrize(("rows", "width"), [([0], 6), ([1], 9), ([0, 2], 50), ([2, 1, 0], 50)])
def test_a_batch_is_as_wide_as_its_longest_window(rows, width):
    windows = [make_window(6), make_window(9), make_window(50)]
    assert collate(windows, np.array(rows), pad_id=0).ids.shape == (len(rows), width)


def test_a_batch_can_be_padded_further():
    batch = collate([make_window(6), make_window(9)], np.array([0, 1]), pad_id=7, width=12)
    assert batch.ids.shape == batch.mask.shape == batch.segments.shape == (2, 12)
    assert batch.ids[1, 9:].tolist() == [7, 7, 7]
    assert not batch.mask[1, 9:].any()


def test_a_part_of_a_batch_is_a_view_of_some_windows():
    windows = [make_window(9, start=3, end=5), make_window(9), make_window(6, start=4, end=4)]
    batch = collate(windows, np.array([2, 0, 1]), pad_id=0)
    part = batch.part(1, 3)
    assert part.rows.tolist() == [0, 1]
    assert all(torch.equal(some, whole[1:3]) for some, whole in zip(part[:5], batch[:5], strict=True))
    assert part.mask.untyped_storage().data_ptr() == batch.mask.untyped_storage().data_ptr()


def test_first_tokens_keep_the_labels():
    batch = collate([make_window(6, start=3, end=4), make_window(9)], np.array([0, 1]), pad_id=0).first_tokens()
    assert (batch.ids.tolist(), batch.mask.tolist(), batch.segments.tolist()) == (
        [[100], [100]],
        [[True], [True]],
        [[0], [0]],
    )
    assert (batch.starts.tolist(), batch.ends.tolist(), batch.rows.tolist()) == ([3, 0], [4, 0], [0, 1])


def test_labels_and_rows_stand_in_the_order_asked_for():
    windows = [make_window(9, start=3, end=5), make_window(9), make_window(9, start=4, end=4)]
    batch = collate(windows, np.array([2, 0, 1]), pad_id=0)
    assert (batch.starts.tolist(), batch.ends.tolist()) == ([4, 3, 0], [4, 5, 0])
    assert batch.rows.tolist() == [2, 0, 1]


def test_tags_of_a_part_are_those_of_its_windows():
    windows = [replace(make_window(length), label=np.full(length, length, dtype=np.int32)) for length in (6, 4, 5)]
    part = collate(windows, np.array([2, 0, 1]), pad_id=0, width=7).part(0, 2)
    assert part.labels.tolist() == [[5] * 5 + [-100] * 2, [6] * 6 + [-100]]


def test_a_batch_has_the_types_that_torch_takes():
    batch = collate([make_window(6)], np.array([0]), pad_id=0)
    types = {name: getattr(batch, name).dtype for name in ("ids", "mask", "segments", "starts", "ends")}
    assert types.pop("mask") == torch.bool
    assert set(types.values()) == {torch.int64}


def test_a_batch_moves_to_a_device_with_all_its_tensors():
    batch = collate([make_window(6), make_window(9)], np.array([1, 0]), pad_id=0)
    moved = batch.to(torch.device("meta"))
    assert [tensor.device.type for tensor in moved[:5]] == ["meta"] * 5
    assert [tensor.shape for tensor in moved[:5]] == [tensor.shape for tensor in batch[:5]]
    assert moved.rows.tolist() == [1, 0]


def test_lengths_count_every_token_of_a_window():
    assert lengths_of([make_window(6), make_window(9)]).tolist() == [6, 9]


@pytest.mark.parametrize(("rows", "group"), [(12, 1), (7, 1), (9, 3), (1, 1), (3, 3)])
def test_parts_of_a_step_have_every_window_once_and_shares_that_add_up(rows, group):
    random = np.random.default_rng(1)
    lengths, weights = random.integers(5, 60, 30), random.integers(1, 9, 30)
    step = (random.permutation(30 // group)[: rows // group, None] * group + np.arange(group)).reshape(-1)
    dealt = [deal(step, lengths, weights, Part(place, 4), group) for place in range(4)]
    own = [part for part, share in dealt if share]
    assert sorted(np.concatenate(own)) == sorted(step)
    assert sum(share for _, share in dealt) == pytest.approx(1)
    for part, share in dealt:
        assert (part.reshape(-1, group) // group == part[::group, None] // group).all()  # groups are whole
        assert share == pytest.approx(weights[part].sum() / weights[step].sum() if share else 0)


def test_parts_of_a_step_are_of_like_size_and_lengths():
    lengths = np.random.default_rng(1).integers(5, 400, 64)
    parts = [deal(np.arange(64), lengths, np.ones_like(lengths), Part(place, 4))[0] for place in range(4)]
    computed = [int(lengths[part].max()) * len(part) for part in parts]
    assert {len(part) for part in parts} == {16}
    assert max(computed) / min(computed) < 1.1


def test_a_process_that_is_alone_has_the_step_as_it_is():
    rows = np.array([3, 1, 2])
    assert deal(rows, np.arange(9), np.ones(9, np.int64), WHOLE) == (rows, None)


def test_tags_count_by_their_tokens_and_other_windows_alike(make_task):
    windows, _ = make_task("tags")
    assert loss_weights(windows).tolist() == [2, 3, 4, 5]
    windows, _ = make_task("class")
    assert loss_weights(windows).tolist() == [1] * len(windows)
