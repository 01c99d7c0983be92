import copy

import pytest
import torch

from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.tune import merge_tuning, remove_tuning, trained_state, tune, tuning_of
from bertvision.errors import EncoderError, SettingsError

EVERYTHING = [
    {"train": "all", "insert": "houlsby:4"},
    {"train": "none", "insert": "pfeiffer:4"},
    {"train": "none", "insert": "lora:2"},
    {"train": "top:1", "parasites": {"width": 4, "length": 9}},
    {"train": "bitfit", "train_norms": False},
]


def hooks_of(model):
    return {path: len(module._forward_hooks) + len(module._forward_pre_hooks) for path, module in model.named_modules()}


@pytest.mark.parametrize("settings", EVERYTHING)
def test_removing_a_tuning_restores_the_encoder_bit_for_bit(make_model, settings, batch, shake, states_of):
    model = make_model()
    states = states_of(model, batch)  # also lets transformers set its own hooks
    weights, hooks = {name: value.clone() for name, value in model.state_dict().items()}, hooks_of(model)
    tune(model, TuneConfig.model_validate(settings), seed=1)
    shake(model)
    assert not torch.equal(states_of(model, batch), states)
    remove_tuning(model)
    assert torch.equal(states_of(model, batch), states)
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert hooks_of(model) == hooks
    assert tuning_of(model) is None


def test_a_second_tuning_is_refused_and_the_first_stays(make_model, batch, shake, states_of):
    model = make_model()
    tune(model, TuneConfig(train="none", insert="houlsby:4"), seed=1)
    shake(model)
    states = states_of(model, batch)
    with pytest.raises(SettingsError, match=r"holds a tuning already \(.*insert: houlsby:4.*\); tune another copy"):
        tune(model, TuneConfig(train="none", insert="lora:2"), seed=2)
    assert torch.equal(states_of(model, batch), states)


def test_after_a_tuning_was_removed_another_one_starts_from_the_plain_encoder(make_model, batch, shake, states_of):
    model, other = make_model(), make_model()
    tune(model, TuneConfig(train="all"), seed=1)
    shake(model)
    remove_tuning(model)
    for each in (model, other):
        tune(each, TuneConfig(train="none", insert="houlsby:4"), seed=2)
    assert torch.equal(states_of(model, batch), states_of(other, batch))


def test_the_trained_state_is_all_that_differs_from_the_plain_encoder(make_model, shake):
    model = make_model()
    plain = {name: value.clone() for name, value in model.state_dict().items()}
    tune(model, TuneConfig(train="top:1", insert="houlsby:4"), seed=1)
    shake(model)
    state = trained_state(model)
    differs = {
        name for name, value in model.state_dict().items() if name in plain and not torch.equal(value, plain[name])
    }
    adapters = {name.replace(".tuned.", ".") for name in model.state_dict() if ".tuned." in name}
    assert state.keys() == differs | adapters
    assert len(adapters) == 3 * 2 * 4


def test_a_deep_copy_takes_its_tuning_along(make_model, batch, shake, states_of):
    model = make_model()
    plain = states_of(model, batch)
    tune(model, TuneConfig(train="none", insert="houlsby:4", parasites={"width": 4}), seed=1)
    shake(model)
    tuned, twin = states_of(model, batch), copy.deepcopy(model)
    remove_tuning(twin)
    assert torch.equal(states_of(twin, batch), plain)
    assert torch.equal(states_of(model, batch), tuned)


@pytest.mark.parametrize("act", [remove_tuning, trained_state, merge_tuning])
def test_what_needs_a_tuning_says_how_to_get_one(make_model, act):
    with pytest.raises(SettingsError, match="needs a tuned one; call tune or load_adapters first"):
        act(make_model())


@pytest.mark.parametrize("settings", [{"insert": "houlsby:4"}, {"parasites": {}}])
def test_what_is_not_linear_is_not_merged(make_model, settings):
    model = make_model()
    tune(model, TuneConfig.model_validate({"train": "none", **settings}), seed=1)
    with pytest.raises(EncoderError, match="only LoRA can be merged"):
        merge_tuning(model)
