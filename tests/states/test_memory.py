import pytest
import torch

from bertvision.encoder.encode import StateSource, freeze
from bertvision.heads.config import HeadsConfig
from bertvision.heads.training import build_heads, train_heads_together
from bertvision.settings import validate
from bertvision.shapes import StackShape
from bertvision.states.live import LiveStates
from bertvision.states.memory import StateRequest, StoredStates, keep_in_memory
from bertvision.training.device import choose_compute
from bertvision.windows.plan import BatchConfig

THREES, SIX = BatchConfig(windows=3), BatchConfig(windows=6)
NAMES = ["learned_pooling", "adapter_64_shared_skip", "last_linear"]


def kept(request, dtype=torch.float32):
    return keep_in_memory(request, dtype)


def cached(store, wanted, batch=THREES, **more):
    return StoredStates(store, wanted.windows, batch, 7, wanted.compute, pad_id=0, group=wanted.group, **more)


def live(wanted, batch=THREES, **more):
    chosen = {"layers": wanted.layers, "pooling": wanted.pooling, "group": wanted.group}
    return LiveStates(wanted.encoder, wanted.windows, batch, 7, wanted.compute, **chosen, **more)


def trained(source, wanted):
    """Heads, trained on a source."""
    config = validate(HeadsConfig, {"train": NAMES, "batch": {"windows": 3}, "epochs": 3}, "test")
    heads = build_heads(config.train, StackShape(3, 32), seed=1)
    for _ in train_heads_together(heads, source, config, seed=1, compute=wanted.compute):
        pass
    return heads


def weights(head):
    return torch.cat([each.detach().flatten() for each in head.parameters()])


@torch.no_grad()
def log_probabilities(head, source):
    """Of every real token's start and end."""
    return torch.cat([head(*each.seen).log_softmax(dim=1)[each.windows.mask] for each in source.epoch(0)])


@pytest.mark.parametrize("batch", [THREES, BatchConfig(tokens=45)])
@pytest.mark.parametrize("states_batch", [None, SIX])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"layers": (0, 2)},
        {"pooling": "first"},
        {"pooling": "first_mean_max", "layers": (1,)},
        {"group": 4},
        {"pooling": "mean", "group": 2},
    ],
)
def test_order_padding_and_states_are_those_of_the_live_source(batch, states_batch, more, wanted, small_batches):
    want = wanted(**more)
    source = cached(kept(want), want, batch, states_batch=states_batch)
    like = live(want, batch, states_batch=states_batch)
    assert isinstance(source, StateSource)
    for epoch in (0, 1):
        batches, expected = list(source.epoch(epoch)), list(like.epoch(epoch))
        assert source.num_steps(epoch) == like.num_steps(epoch) == len(batches) == len(expected)
        for found, other in zip(batches, expected, strict=True):
            assert all(torch.equal(one, two) for one, two in zip(found.windows[:5], other.windows[:5], strict=True))
            assert found.windows.rows.tolist() == other.windows.rows.tolist()
            real = other.windows.mask[:, None, :, None]
            torch.testing.assert_close(found.states, other.states * real, rtol=1e-4, atol=1e-5)
            assert found.states.transpose(0, 1).is_contiguous()


def test_an_encoder_without_pooler_has_no_pooled_cls_state(wanted):
    wanted().encoder.model.pooler = None
    want = wanted(pooling="first")
    found, like = (next(iter(each.epoch(0))) for each in (cached(kept(want), want), live(want)))
    assert found.states.shape == (3, 3, 1, 32)
    torch.testing.assert_close(found.states, like.states, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("states_batch", [None, SIX])
def test_an_epoch_goes_on_from_any_step(states_batch, wanted):
    want = wanted()
    source = cached(kept(want), want, BatchConfig(windows=2), states_batch=states_batch)
    whole = [(batch.windows.rows.tolist(), batch.states.clone()) for batch in source.epoch(1)]
    for first in range(len(whole) + 1):
        left = list(source.epoch(1, first))
        assert [batch.windows.rows.tolist() for batch in left] == [rows for rows, _ in whole[first:]]
        assert all(torch.equal(batch.states, states) for batch, (_, states) in zip(left, whole[first:], strict=True))


def test_heads_trained_on_kept_float32_states_are_those_trained_live(wanted):
    want = wanted()
    source = live(want)
    found, expected = trained(cached(kept(want), want), want), trained(source, want)
    for name in NAMES:
        one, other = (log_probabilities(heads[name], source) for heads in (found, expected))
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_heads_trained_on_rounded_states_are_near_those_trained_live(wanted):
    want = wanted()
    found, expected = trained(cached(kept(want, torch.bfloat16), want), want), trained(live(want), want)
    for name in NAMES:
        assert 0 < (weights(found[name]) - weights(expected[name])).abs().max() < 1e-2


def test_states_have_the_size_of_their_tokens_layers_and_numbers(wanted, windows):
    tokens = sum(len(window) for window in windows)
    assert wanted().num_bytes(torch.float32) == tokens * 3 * 32 * 4
    assert wanted(layers=(1,)).num_bytes(torch.bfloat16) == tokens * 32 * 2
    assert wanted(pooling="first").num_bytes(torch.bfloat16) == len(windows) * 4 * 32 * 2


def test_a_batch_that_is_held_on_to_keeps_its_states(wanted):
    want = wanted()
    source = cached(kept(want), want, BatchConfig(windows=1))
    held = list(source.epoch(0))
    again = [batch.states.clone() for batch in source.epoch(0)]
    assert all(torch.equal(batch.states, states) for batch, states in zip(held, again, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_gpu_gets_the_states_of_the_live_source(dtype, encoder, windows):
    compute = choose_compute("cuda")
    want = StateRequest(freeze(encoder, compute), windows, compute)
    source, like = cached(kept(want, dtype), want, states_batch=SIX), live(want, states_batch=SIX)
    for found, other in zip(source.epoch(0), like.epoch(0), strict=True):
        assert (found.states.device, found.states.dtype) == (other.states.device, other.states.dtype)
        assert found.states.transpose(0, 1).is_contiguous()
        real = other.windows.mask[:, None, :, None]
        torch.testing.assert_close(found.states, other.states * real, rtol=3e-2, atol=3e-2)
