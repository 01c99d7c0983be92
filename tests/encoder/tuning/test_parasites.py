import copy
from math import erf

import numpy as np
import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel

from bertvision.encoder.tuning.adapters import Parasite
from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.tune import tune
from bertvision.errors import EncoderError


def with_parasites(model, **sizes):
    return tune(model, TuneConfig.model_validate({"train": "none", "train_norms": False, "parasites": sizes}), seed=1)


@pytest.mark.parametrize(
    ("width", "states", "count"), [(16, 1, 315_072), (64, 1, 1_200_384), (64, 20, 1_208_832), (64, "all", 1_208_832)]
)
def test_the_counts_for_128_tokens_are_the_original_ones(width, states, count):
    with torch.device("meta"):
        model = BertModel(BertConfig())
        assert with_parasites(model, width=width, states=states, length=128).trained == count


def test_a_parasite_weighs_tokens_and_sends_their_sum_through_a_bottleneck():
    parasite = Parasite(states=2, length=5, hidden=3, width=2)
    for param in parasite.parameters():
        nn.init.normal_(param)
    states, mask = torch.randn(1, 2, 4, 3), torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    weights = {name: param.detach().numpy() for name, param in parasite.named_parameters()}
    read = weights["bias"].copy()
    for layer in range(2):
        for token in range(3):  # the fourth is padding
            read += weights["weights"][layer, token] * states[0, layer, token].numpy()
    inner = weights["down.weight"] @ read + weights["down.bias"]
    inner = np.array([x * 0.5 * (1 + erf(x / 2**0.5)) for x in inner])
    expected = weights["up.weight"] @ inner + weights["up.bias"]
    np.testing.assert_allclose(parasite(states, mask)[0, 0].detach().numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("read", [1, 2, "all"])
def test_a_block_gets_its_input_and_what_the_parasite_made_of_earlier_states(make_model, kind, read, batch, shake):
    model = make_model(kind)
    with_parasites(model, width=4, states=read, length=9)
    shake(model)
    blocks = next(module for module in model.modules() if type(module) is nn.ModuleList)
    raw, fed = [], []
    for block in blocks:
        block.register_forward_pre_hook(lambda _, args: raw.append(args[0]), prepend=True)
        block.register_forward_pre_hook(lambda _, args: fed.append(args[0]))
    with torch.no_grad():
        model(**batch)
        for number, parasite in enumerate(model.parasites["tuned"]):
            first = 0 if read == "all" else max(0, number + 1 - read)
            earlier = torch.stack(raw[first : number + 1], dim=1)
            torch.testing.assert_close(fed[number], raw[number] + parasite(earlier, batch["attention_mask"].float()))
    assert len(fed) == 3


def test_padding_and_the_rest_of_a_batch_change_nothing(make_model, kind, batch, shake):
    model = make_model(kind)
    with_parasites(model, width=4, states="all", length=9)
    shake(model)
    with torch.no_grad():
        together = model(**batch).last_hidden_state[1, :4]
        alone = model(**{name: rows[1:, :4] for name, rows in batch.items()}).last_hidden_state[0]
        unmasked = model(input_ids=batch["input_ids"][1:, :4]).last_hidden_state[0]
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(unmasked, alone)


def test_a_mask_given_by_position_counts_as_one_given_by_name(make_model, kind, batch, shake):
    model = make_model(kind)
    with_parasites(model, width=4, length=9)
    shake(model)
    with torch.no_grad():
        by_name, by_position = model(**batch), model(batch["input_ids"], batch["attention_mask"])
        unmasked = model(batch["input_ids"])
    assert torch.equal(by_position.last_hidden_state, by_name.last_hidden_state)
    assert not torch.allclose(unmasked.last_hidden_state[1], by_name.last_hidden_state[1], atol=1e-3)


def test_a_row_that_is_too_long_is_refused_in_one_line(make_model, batch):
    model = make_model()
    with_parasites(model, length=6)
    with pytest.raises(EncoderError, match="a row of 7 tokens, but the parasites have weights for 6") as caught:
        model(**batch)
    assert "\n" not in str(caught.value)
    model(**{name: rows[:, :6] for name, rows in batch.items()})  # the failure left nothing behind


def test_a_mask_of_pairs_of_tokens_is_refused(make_model, batch):
    model = make_model()
    with_parasites(model)
    with pytest.raises(EncoderError, match="a mask of batch x tokens, got one of 4 axes"):
        model(input_ids=batch["input_ids"], attention_mask=torch.ones(2, 1, 7, 7))


def test_every_weight_of_a_parasite_learns(make_model, batch, shake):
    model = make_model()
    tuned = with_parasites(model, width=4, length=7)
    shake(model)  # at the start nothing is read, so the first layer behind it learns only later
    model(**batch).last_hidden_state.pow(3).sum().backward()
    with_gradient = {name for name, param in model.named_parameters() if param.grad is not None and param.grad.any()}
    assert with_gradient == tuned.sizes.keys()
    assert tuned.trained == 3 * (7 + 32 + (32 * 4 + 4) + (4 * 32 + 32))


def test_parasites_keep_no_states_after_a_pass(make_model, batch):
    model = make_model()
    with_parasites(model)
    model(**batch)
    assert model.parasites["tuned"]._seen == []
    assert model.parasites["tuned"]._mask is None


def test_a_deep_copy_feeds_its_own_parasites(make_model, batch, shake, states_of):
    model = make_model()
    with_parasites(model)
    before, twin = states_of(model, batch), copy.deepcopy(model)
    shake(model)
    assert torch.equal(states_of(twin, batch), before)
    assert not torch.equal(states_of(model, batch), before)
