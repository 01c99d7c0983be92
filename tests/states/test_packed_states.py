"""Heads see the same states of packed tokens as of padded rows, step for step."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bertvision.encoder.encode import StateSource, encode, freeze
from bertvision.encoder.load import load_encoder
from bertvision.heads import logits as logits_module
from bertvision.heads.config import HeadConfig, HeadsConfig
from bertvision.heads.logits import token_logits
from bertvision.heads.training import build_groups, build_heads, can_learn_together, train_heads_together
from bertvision.states.live import LiveStates, PackedLiveStates, packs_states
from bertvision.tasks import KINDS
from bertvision.training.device import Compute, choose_compute
from bertvision.training.objective import SPANS, Objective
from bertvision.windows.batches import collate
from bertvision.windows.packing import cut_in_order
from bertvision.windows.plan import BatchConfig

PAIRS, SIX = BatchConfig(windows=2), BatchConfig(windows=6)
HEADS = ["learned_pooling", "adapter_64_shared_skip", "adapter_64_unshared", "last_linear"]
CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # sums of a few dozen float32 products in another order


@pytest.fixture
def source(encoder, windows, cpu):
    freeze(encoder, cpu)
    return lambda kind, **more: kind(encoder, windows, PAIRS, 7, cpu, **more)


@pytest.mark.parametrize("states_batch", [None, SIX])
def test_every_step_holds_the_states_of_its_own_windows(source, encoder, windows, states_batch):
    packed = source(PackedLiveStates, states_batch=states_batch)
    padded = list(source(LiveStates, states_batch=states_batch).epoch(2))
    steps = list(packed.epoch(2))
    assert isinstance(packed, StateSource)
    assert packed.num_steps(2) == len(steps) == len(padded)
    assert len({step.shape for step in steps}) == 1
    for step, other in zip(steps, padded, strict=True):
        assert step.windows.rows.tolist() == other.windows.rows.tolist()
        first = 0
        for row in step.windows.rows:
            stop = first + len(windows[row])
            alone = encode(encoder, collate(windows, np.array([row]), 0))
            torch.testing.assert_close(step.states[0, :, first:stop], alone[0], **CLOSE)
            first = stop


@pytest.mark.parametrize("first", range(5))
def test_an_epoch_goes_on_from_any_step(source, first):
    packed = source(PackedLiveStates, states_batch=SIX)
    whole, left = list(packed.epoch(3)), list(packed.epoch(3, first))
    assert len(left) == len(whole) - first
    assert all(torch.equal(one.states, other.states) for one, other in zip(left, whole[first:], strict=True))


@pytest.mark.parametrize("kind", ["span", "tags"])
def test_heads_have_the_losses_and_gradients_of_padded_rows(source, encoder, windows, cpu, kind):
    objective = SPANS
    if kind == "tags":
        objective = Objective(KINDS["tags"], 3)
        random = np.random.default_rng(0)
        windows[:] = [replace(window, label=random.integers(0, 3, len(window), dtype=np.int32)) for window in windows]
    configs = tuple(HeadConfig.model_validate(name) for name in HEADS)
    found = []
    for each in (PackedLiveStates, LiveStates):
        heads = build_heads(configs, encoder.shape, 1, objective)
        (group,) = build_groups(heads, HeadsConfig(train=configs), 10, 1, cpu, objective)
        batch = next(source(each).epoch(0))
        losses = group._backward([batch])
        found.append([losses, *(param.grad for head in heads.values() for param in head.parameters())])
    for packed, padded in zip(*found, strict=True):
        torch.testing.assert_close(packed, padded, **CLOSE)


def test_all_heads_answer_together_as_each_alone(encoder, windows, cpu, monkeypatch):
    freeze(encoder, cpu)
    heads = build_heads([HeadConfig.model_validate(name) for name in HEADS], encoder.shape, 1)
    alone = token_logits(encoder, heads, windows, cpu, tokens=60)
    monkeypatch.setattr(logits_module, "packs_states", lambda *_given: True)
    together = token_logits(encoder, heads, windows, cpu, tokens=60)
    assert list(together) == list(alone)
    for name, logits in alone.items():
        np.testing.assert_allclose(together[name], logits, rtol=1e-4, atol=1e-5)


def test_packing_is_for_known_encoders_on_a_gpu_in_bf16(encoder, cpu):
    gpu = Compute(torch.device("cuda"), torch.bfloat16)
    assert packs_states(encoder, gpu)
    assert not packs_states(encoder, gpu._replace(dtype=torch.float32))
    assert not packs_states(encoder, cpu)
    encoder.model.config.model_type = "mpnet"
    assert not packs_states(encoder, gpu)


def test_heads_that_see_their_neighbours_or_draw_are_not_packed(encoder):
    heads = build_heads([HeadConfig.model_validate(name) for name in ("last_linear", "cnn_1xn")], encoder.shape, 1)
    assert can_learn_together(heads["last_linear"])
    assert not can_learn_together(heads["cnn_1xn"])


def test_rows_are_cut_by_their_real_tokens():
    batches = cut_in_order(np.array([5, 9, 3, 7, 9, 1]), 14)
    assert [rows.tolist() for rows in batches] == [[0, 1], [2, 3], [4, 5]]
    assert [rows.tolist() for rows in cut_in_order(np.array([20, 3]), 14)] == [[0], [1]]  # one row always fits


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [PackedLiveStates, LiveStates])
def test_replayed_steps_end_where_eager_ones_do(kind, windows, encoder_folder, monkeypatch):
    compute = choose_compute("cuda")
    config = HeadsConfig(train=tuple(HeadConfig.model_validate(name) for name in HEADS), epochs=10, batch=PAIRS)
    ends = []
    for each in (kind, LiveStates):
        if each is LiveStates:
            monkeypatch.setattr(Compute, "replays", False)
        encoder = freeze(load_encoder(str(encoder_folder)), compute)
        heads = build_heads(config.train, encoder.shape, 1)
        source = each(encoder, windows, PAIRS, 7, compute)
        assert [end.epoch for end in train_heads_together(heads, source, config, seed=1, compute=compute)][-1] == 10
        ends.append(token_logits(encoder, heads, windows, compute))
    for name, logits in ends[0].items():
        # bf16 states have 3 digits, and Adam takes full steps on small gradients: compare to how far scores lie apart.
        assert np.abs(logits - ends[1][name]).max() < 0.1 * np.ptp(ends[1][name])
