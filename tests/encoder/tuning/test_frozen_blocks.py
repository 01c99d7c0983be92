from contextlib import nullcontext

import pytest
import torch
from torch import nn

from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.freezing import (
    bottom_of,
    first_above_bottom,
    quiet_bottom,
    set_trained,
    starting_at,
    state_entering,
    trained_names,
)
from bertvision.encoder.tuning.tune import start_tuning

LENGTHS = (9, 4, 7, 2)


def rows_of(lengths):
    """Rows of the given lengths, padded to the longest of them; a length decides its row."""
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = 3 + (torch.arange(length) * 5 + length) % 30
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def train(model, setting):
    config = TuneConfig(train=setting, norms=False)
    set_trained(model, trained_names(model, config.trained, norms=config.norms))
    return model.train()  # dropout on above


def kept_states(model, first):
    """Every row's own state, computed in one batch of all, without its padding."""
    batch = rows_of(LENGTHS)
    quiet_bottom(model, first)
    with torch.no_grad():
        states = state_entering(model, first, lambda: model(**batch))
    return {length: state[:length] for length, state in zip(LENGTHS, states, strict=True)}


def padded(states):
    return nn.utils.rnn.pad_sequence(states, batch_first=True)


def outcome(model, batch, head, inside):
    """Run a step on real tokens alone with given dropout; gives the head's logits and every gradient."""
    model.zero_grad()
    head.zero_grad()
    torch.manual_seed(3)
    real = batch["attention_mask"].bool()
    with inside:
        logits = head(model(**batch).last_hidden_state)[real]
    logits.pow(2).sum().backward()
    learned = [*model.parameters(), head.weight]
    return [logits.detach(), *(param.grad.clone() for param in learned if param.grad is not None)]


@pytest.mark.parametrize("setting", ["top:1", "top:2"])
@pytest.mark.parametrize("lengths", [(4, 9), (2,), (7, 2, 4)])
def test_from_kept_states_come_the_logits_and_gradients_of_the_live_bottom(make_model, kind, setting, lengths):
    model, head, batch = train(make_model(kind), setting), nn.Linear(32, 2), rows_of(lengths)
    first = first_above_bottom(model)
    assert first == 4 - int(setting[-1])
    kept = kept_states(model, first)
    live = outcome(model, batch, head, nullcontext())
    again = outcome(model, batch, head, starting_at(model, first, padded([kept[length] for length in lengths])))
    assert len(live) > 5
    for one, other in zip(live, again, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


def test_of_an_encoder_that_learns_nothing_the_last_state_is_kept(make_model, kind):
    model, batch = train(make_model(kind), "none"), rows_of((4, 9))
    assert first_above_bottom(model) == 4
    kept = kept_states(model, 4)
    with torch.no_grad():
        live = model.eval()(**batch)
        with starting_at(model, 4, padded([kept[4], kept[9]])):
            again = model(**batch)
    assert again.keys() == live.keys()
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(again.last_hidden_state[real], live.last_hidden_state[real], rtol=1e-4, atol=1e-5)
    if "pooler_output" in live:
        torch.testing.assert_close(again.pooler_output, live.pooler_output, rtol=1e-4, atol=1e-5)


def test_a_convolution_behind_the_first_block_is_part_of_the_bottom(make_model):
    config = make_model("deberta-v2").config
    model = train(type(make_model("deberta-v2"))(with_convolution(config)), "top:2")
    kept, batch, head = kept_states(model, 2), rows_of((4, 9)), nn.Linear(32, 2)
    live = outcome(model, batch, head, nullcontext())
    again = outcome(model, batch, head, starting_at(model, 2, padded([kept[4], kept[9]])))
    for one, other in zip(live, again, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


def with_convolution(config):
    config.conv_kernel_size, config.conv_act = 3, "gelu"
    return config


def test_what_lies_below_does_not_run_and_afterwards_does_again(make_model, kind, batch, states_of):
    model = train(make_model(kind), "top:1").eval()
    before, run = states_of(model, batch), []
    inner = [child for module in bottom_of(model, 3) for child in module.modules() if not list(child.children())]
    for module in inner:
        module.register_forward_hook(lambda module, *_: run.append(module))
    with starting_at(model, 3, before[2]):
        model(**batch)
    ran_within = [module for module in run if module not in bottom_of(model, 3)]
    assert not ran_within  # ELECTRA's projection is a stand-in itself
    assert torch.equal(states_of(model, batch), before)
    assert run


def test_an_error_within_leaves_the_encoder_as_it_was(make_model, batch, states_of):
    model = train(make_model(), "top:1").eval()
    before = states_of(model, batch)
    with pytest.raises(KeyboardInterrupt), starting_at(model, 3, before[2]):
        raise KeyboardInterrupt
    assert torch.equal(states_of(model, batch), before)


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"train": "top:1", "norms": False}, 3),
        ({"train": "none", "norms": False}, 4),
        ({"train": "top:3", "norms": False}, None),  # the embeddings alone are not worth keeping
        ({"train": "top:1"}, None),  # the embeddings' norm learns
        ({"train": "none", "norms": False, "insert": "houlsby:4"}, None),
        ({"train": "bitfit", "norms": False}, None),
        ({}, None),
    ],
)
def test_there_is_a_bottom_where_a_block_lies_below_all_that_learns(make_model, settings, first):
    model, config = make_model(), TuneConfig.model_validate(settings)
    start_tuning(model, config, seed=1)
    assert first_above_bottom(model) == first


def test_a_quiet_bottom_draws_nothing_while_dropout_acts_above(make_model, kind, batch):
    model = train(make_model(kind), "top:1")
    quiet_bottom(model, 3)
    states = [model(**batch, output_hidden_states=True).hidden_states for _ in range(2)]
    assert torch.equal(states[0][2], states[1][2])
    assert not torch.equal(states[0][3], states[1][3])
