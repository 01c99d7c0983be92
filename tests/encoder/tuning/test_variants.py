import copy

import pytest
import torch

from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.tune import tune
from bertvision.encoder.tuning.variants import (
    merge_tuning,
    plain_state,
    remove_tuning,
    set_active,
    train_active,
    trained_state,
    variants_of,
)
from bertvision.errors import EncoderError, SettingsError

EVERYTHING = [
    {"train": "all", "insert": "houlsby:4"},
    {"train": "none", "insert": "pfeiffer:4"},
    {"train": "none", "insert": "lora:2"},
    {"train": "top:1", "parasites": {"width": 4, "length": 9}},
    {"train": "bitfit", "norms": False},
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
    remove_tuning(model, "tuned")
    assert torch.equal(states_of(model, batch), states)
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert hooks_of(model) == hooks
    assert "tunings" not in model.__dict__


def test_tunings_take_turns_and_each_has_its_own_norms(make_model, kind, batch, shake, states_of):
    model = make_model(kind)
    seen = {None: states_of(model, batch)}
    for seed, (name, insert) in enumerate({"one": "houlsby:4", "two": "pfeiffer:6", "three": "lora:2"}.items()):
        tune(model, TuneConfig(train="none", insert=insert), seed=seed, name=name)
        shake(model, seed=seed)
        seen[name] = states_of(model, batch)
    for name in ("one", None, "three", "two", "one", "three", None):
        set_active(model, name)
        assert torch.equal(states_of(model, batch), seen[name]), name
    assert not any(torch.equal(seen["one"], seen[other]) for other in ("two", "three", None))


def test_a_new_tuning_starts_from_the_plain_encoder(make_model, batch, shake, states_of):
    model, other = make_model(), make_model()
    tune(model, TuneConfig(train="all"), seed=1, name="first")
    shake(model)
    for each in (model, other):
        tune(each, TuneConfig(train="none", insert="houlsby:4"), seed=2, name="second")
    assert torch.equal(states_of(model, batch), states_of(other, batch))


def test_removing_one_tuning_leaves_the_others(make_model, batch, shake, states_of):
    model = make_model()
    for name, insert in {"one": "houlsby:4", "two": "lora:2", "three": "lora:3"}.items():
        tune(model, TuneConfig(train="none", insert=insert), seed=1, name=name)
        shake(model)
    third = states_of(model, batch)
    remove_tuning(model, "one")
    remove_tuning(model, "two")
    assert torch.equal(states_of(model, batch), third)
    assert trained_state(model, "three").keys() == trained_state(model).keys()


def test_a_removed_tuning_leaves_no_values_behind(make_model):
    model = make_model()
    tune(model, TuneConfig(train="none", insert="houlsby:4"), seed=1, name="one")
    tune(model, TuneConfig(train="all"), seed=1, name="two")
    remove_tuning(model, "two")
    set_active(model, "one")
    words = model.embeddings.word_embeddings.weight
    words.data += 1  # no tuning's any more
    assert torch.equal(plain_state(model)["embeddings.word_embeddings.weight"], words)


def test_asking_for_tunings_leaves_no_trace_on_the_encoder(make_model):
    model = make_model()
    assert variants_of(model).by_name == {}
    set_active(model, None)
    assert "tunings" not in model.__dict__


def test_after_a_switch_the_chosen_tuning_can_learn_on(make_model):
    model = make_model()
    one = tune(model, TuneConfig(train="top:1", insert="houlsby:4"), seed=1, name="one")
    two = tune(model, TuneConfig(train="none", insert="lora:2", norms=False), seed=1, name="two")
    set_active(model, "one")
    assert learning(model) == two.sizes.keys()  # a switch alone changes no flag
    train_active(model)
    assert learning(model) - {name for name in learning(model) if ".base_layer." in name} <= one.sizes.keys()
    assert len(learning(model)) == len(one.sizes)
    set_active(model, None)
    train_active(model)
    assert learning(model) == set()


def learning(model):
    return {name for name, param in model.named_parameters() if param.requires_grad}


def test_the_trained_state_is_all_that_differs_from_the_plain_encoder(make_model, shake):
    model = make_model()
    plain = {name: value.clone() for name, value in model.state_dict().items()}
    tune(model, TuneConfig(train="top:1", insert="houlsby:4"), seed=1, name="mine")
    shake(model)
    state = trained_state(model)
    differs = {
        name for name, value in model.state_dict().items() if name in plain and not torch.equal(value, plain[name])
    }
    adapters = {name.replace(".mine.", ".") for name in model.state_dict() if ".mine." in name}
    assert state.keys() == differs | adapters
    assert len(adapters) == 3 * 2 * 4
    set_active(model, None)
    assert all(torch.equal(value, state[name]) for name, value in trained_state(model, "mine").items())


def test_a_deep_copy_takes_its_tunings_along(make_model, batch, shake, states_of):
    model = make_model()
    plain = states_of(model, batch)
    tune(model, TuneConfig(train="none", insert="houlsby:4", parasites={"width": 4}), seed=1)
    shake(model)
    tuned, twin = states_of(model, batch), copy.deepcopy(model)
    remove_tuning(twin, "tuned")
    assert torch.equal(states_of(twin, batch), plain)
    assert torch.equal(states_of(model, batch), tuned)


@pytest.mark.parametrize("act", [set_active, remove_tuning, trained_state])
def test_an_unknown_name_is_refused_and_the_known_ones_told(make_model, act):
    model = make_model()
    tune(model, TuneConfig(train="none"), seed=1, name="legal")
    with pytest.raises(SettingsError, match="no tuning 'medical' of this encoder; known: legal"):
        act(model, "medical")


def test_a_plain_encoder_has_no_trained_state(make_model):
    with pytest.raises(SettingsError, match="no tuning None of this encoder; known: none yet"):
        trained_state(make_model())


@pytest.mark.parametrize("settings", [{"insert": "houlsby:4"}, {"parasites": {}}])
def test_what_is_not_linear_is_not_merged(make_model, settings):
    model = make_model()
    tune(model, TuneConfig.model_validate({"train": "none", **settings}), seed=1)
    with pytest.raises(EncoderError, match="only LoRA can be merged"):
        merge_tuning(model)


def test_one_of_several_tunings_is_not_merged(make_model):
    model = make_model()
    for name in ("one", "two"):
        tune(model, TuneConfig(train="none", insert="lora:2"), seed=1, name=name)
    with pytest.raises(EncoderError, match="merging needs one tuning, and an active one, got 2"):
        merge_tuning(model)
