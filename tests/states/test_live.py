from functools import partial

import pytest
import torch

from bertvision.encoder.encode import StateSource, encode, encode_cls, freeze, read_output
from bertvision.states.live import (
    KeptBatches,
    LiveStates,
    outputs_in_order_of_length,
    states_in_order_of_length,
    states_of,
)
from bertvision.training.objective import SPANS
from bertvision.windows.batches import collate
from bertvision.windows.plan import BatchConfig, lengths_of, plan_epoch

PAIRS, SIX = BatchConfig(windows=2), BatchConfig(windows=6)


@pytest.fixture
def make(encoder, windows, cpu):
    freeze(encoder, cpu)
    return lambda **more: LiveStates(encoder, windows, PAIRS, 7, cpu, **more)


def test_without_more_settings_every_step_is_a_batch_of_the_encoder(make, encoder, windows):
    source = make()
    plan = plan_epoch(lengths_of(windows), PAIRS, 7, 1)
    batches = list(source.epoch(1))
    assert isinstance(source, StateSource)
    assert [batch.windows.rows.tolist() for batch in batches] == [rows.tolist() for rows in plan]
    for batch, rows in zip(batches, plan, strict=True):
        assert torch.equal(batch.states, encode(encoder, collate(windows, rows, 0)))


def test_the_encoder_runs_once_per_batch_of_its_own_and_steps_are_views(make, monkeypatch):
    calls = []
    monkeypatch.setattr(
        "bertvision.encoder.encode.encode", lambda *given, **more: calls.append(1) or encode(*given, **more)
    )
    batches = list(make(states_batch=SIX).epoch(0))
    assert len(calls) == 2
    assert [batch.size for batch in batches] == [2, 2, 2, 2]
    storages = [batch.states.untyped_storage().data_ptr() for batch in batches]
    assert (len(set(storages[:3])), len(set(storages))) == (1, 2)
    assert all(batch.states.shape[2] == batch.windows.mask.shape[1] for batch in batches)


def test_a_step_holds_the_states_of_its_own_windows(make, encoder, windows, cpu):
    for batch in make(states_batch=SIX).epoch(0):
        for place, row in enumerate(batch.windows.rows):
            alone = states_of(encoder, windows, batch.windows.rows[place : place + 1], cpu)
            length = len(windows[row])
            torch.testing.assert_close(batch.states[place, :, :length], alone.states[0], rtol=1e-4, atol=1e-5)
            assert batch.windows.mask[place].sum() == length


@pytest.mark.parametrize("states_batch", [None, SIX])
def test_an_epoch_goes_on_from_any_step_with_the_same_bits(make, states_batch):
    source = make(states_batch=states_batch)
    whole = list(source.epoch(3))
    assert source.num_steps(3) == len(whole) == 4
    for first in range(5):
        left = list(source.epoch(3, first))
        assert len(left) == 4 - first
        assert all(torch.equal(one.states, other.states) for one, other in zip(left, whole[first:], strict=True))


def test_layers_and_cls_can_be_chosen(make, encoder, windows, cpu):
    some = next(iter(make(layers=(0, 2)).epoch(0)))
    assert torch.equal(some.states, next(iter(make().epoch(0))).states[:, [0, 2]])
    cls = next(iter(make(pooling="first").epoch(0)))
    assert torch.equal(cls.states, encode_cls(encoder, collate(windows, cls.windows.rows, 0)))
    assert cls.windows.mask.shape == cls.windows.segments.shape == (2, 1)
    predicted = next(iter(states_in_order_of_length(encoder, windows, 100, cpu, layers=(1,))))
    assert predicted.states.shape[1] == 1


@pytest.mark.parametrize("states_batch", [None, SIX])
def test_groups_of_windows_stay_together_in_every_step(make, states_batch):
    for batch in make(group=2, states_batch=states_batch).epoch(1):
        pairs = batch.windows.rows.reshape(-1, 2)
        assert (pairs[:, 0] % 2 == 0).all()
        assert (pairs[:, 1] == pairs[:, 0] + 1).all()


def test_batches_that_fit_are_computed_once_and_others_each_time(make):
    def asked(kept):
        made = []
        list(kept.through("mean", (made.append(each) or each for each in make(pooling="mean").epoch(0))))
        return len(made)

    roomy, tight = KeptBatches(10**9), KeptBatches(1)
    assert [asked(roomy) > 0, asked(roomy), asked(tight) > 0, asked(tight) > 0] == [True, 0, True, True]
    whole = [each.states for each in make(pooling="mean").epoch(0)]
    assert all(torch.equal(a.states, b) for a, b in zip(roomy.through("mean", iter(())), whole, strict=True))


def test_whoever_looks_at_an_output_layers_batches_may_compute_gradients(encoder, windows, cpu):
    read = partial(read_output, objective=SPANS)
    seen = outputs_in_order_of_length(encoder, read, windows, 64, cpu)
    assert not next(seen).states.requires_grad
    assert torch.is_grad_enabled()  # a fit that needs no more batches leaves the rest
