import pytest
import torch
from peft.tuners.lora import Linear
from torch import nn
from transformers import AlbertConfig, AlbertModel, BertForQuestionAnswering

from bertvision.encoder.tuning import adapters
from bertvision.encoder.tuning.blocks import PARTS
from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.tune import tune, what_is_trained
from bertvision.encoder.tuning.variants import remove_tuning, set_active, train_active, trained_state, variants_of
from bertvision.errors import EncoderError, SettingsError

SETTINGS = [
    {"train": "none", "insert": "houlsby:4"},
    {"train": "none", "insert": "lora:2"},
    {"train": "top:1", "parasites": {"width": 4, "length": 9}},
]


def test_every_known_kind_of_encoder_is_tested(make_model, kinds):
    assert set(kinds) == PARTS.keys()
    for kind in kinds:
        tuned = tune(make_model(kind), TuneConfig(train="none", insert="houlsby:4", norms=False), seed=1)
        assert tuned.sizes_by_part == {"adapters": 3 * 2 * (2 * 32 * 4 + 4 + 32)}


def test_a_tuning_says_what_it_trains(make_model):
    tuned = tune(make_model(), TuneConfig(train="none", insert="houlsby:4"), seed=1)
    adapters, norms = 3 * 2 * (2 * 32 * 4 + 4 + 32), (1 + 3 * 2) * 2 * 32
    assert tuned.sizes_by_part == {"norms": norms, "adapters": adapters}
    assert tuned.sizes["encoder.layer.0.attention.output.dropout.adapters.tuned.down.weight"] == 4 * 32
    assert str(tuned) == (
        f"tuned: {norms + adapters:,} of {tuned.total:,} weights are trained (norms {norms:,}, adapters {adapters:,})"
    )


def test_all_is_every_part_of_the_encoder(make_model):
    model = make_model()
    tuned = tune(model, TuneConfig(), seed=1)
    assert tuned.trained == tuned.total == sum(param.numel() for param in model.parameters())
    assert tuned.sizes_by_part.keys() == {"embeddings", "norms", "blocks", "pooler"}


def test_a_plain_encoder_is_told_too(make_model):
    model = make_model()
    model.requires_grad_(False)
    assert str(what_is_trained(model)).endswith("weights are trained (nothing)")


def test_a_seed_decides_the_start_and_the_world_outside_does_not(make_model):
    starts = []
    for seed, outside in ((1, 5), (1, 6), (2, 5)):
        torch.manual_seed(outside)
        model = make_model()
        tune(model, TuneConfig(train="none", insert="houlsby:4", parasites={}), seed=seed)
        after = torch.rand(1)
        torch.manual_seed(outside)
        assert torch.equal(after, torch.rand(1))  # nothing was drawn from the world outside
        starts.append(torch.cat([value.flatten() for value in trained_state(model).values()]))
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])


@pytest.mark.parametrize("name", ["", "my.adapter", "my adapter", "a/b"])
def test_a_name_that_is_no_word_is_refused(make_model, name):
    with pytest.raises(SettingsError, match="a tuning's name is a word"):
        tune(make_model(), TuneConfig(), seed=1, name=name)


# Attributes of torch's modules, projections that LoRA looks for, and words that this package and peft use themselves.
ODD_NAMES = ["train", "type", "keys", "active", "smart_apply", "query", "value", "lora_A", "adapters", "tuning_train"]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_word_is_a_name(make_model, settings, name, batch, shake, states_of):
    model, usual = make_model(), make_model()
    for each, called in ((model, name), (usual, "tuned")):
        tune(each, TuneConfig.model_validate(settings), seed=1, name=called)
        shake(each)
    states = states_of(model, batch)
    assert torch.equal(states, states_of(usual, batch))
    assert trained_state(model).keys() == trained_state(usual).keys()  # the names in files
    tune(model, TuneConfig(train="none", insert="lora:2"), seed=1, name="other")
    set_active(model, name)
    assert torch.equal(states_of(model, batch), states)
    for each in (name, "other"):
        remove_tuning(model, each)
    assert model.state_dict().keys() == make_model().state_dict().keys()


def test_a_name_and_what_another_one_is_kept_under_are_two(make_model):
    model = make_model()
    for name in ("train", "tuning_train", "tuning_tuning_train"):
        tune(model, TuneConfig(train="none", insert="houlsby:4", norms=False), seed=1, name=name)
    assert len(model.encoder.layer[0].output.dropout.adapters) == 3


# What each of the settings calls several times while it inserts.
CALLED = [(adapters, "fill_slot"), (Linear, "update_layer"), (nn.Module, "register_forward_pre_hook")]


def failing(function, calls):
    """The same function, but for its third call, which is interrupted."""

    def fail(*args, **kwargs):
        calls.append(None)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return function(*args, **kwargs)

    return fail


@pytest.mark.parametrize("earlier", [None, *SETTINGS[:2]])
@pytest.mark.parametrize(("settings", "function"), list(zip(SETTINGS, CALLED, strict=True)))
def test_a_tuning_that_fails_halfway_leaves_the_encoder_as_it_was(
    make_model, earlier, settings, function, batch, shake, states_of, monkeypatch
):
    model, untroubled = make_model(), make_model()
    for each in (model, untroubled):
        if earlier is not None:
            tune(each, TuneConfig.model_validate(earlier), seed=1, name="earlier")
            shake(each)
        states_of(each, batch)  # lets transformers set its own hooks
    before = everything_of(model)
    with monkeypatch.context() as patch:
        patch.setattr(*function, failing(getattr(*function), []))
        with pytest.raises(KeyboardInterrupt):
            tune(model, TuneConfig.model_validate(settings), seed=1)
    assert everything_of(model) == before
    assert torch.equal(states_of(model, batch), states_of(untroubled, batch))
    for each in (model, untroubled):
        tune(each, TuneConfig.model_validate(settings), seed=1)
        shake(each)
    assert torch.equal(states_of(model, batch), states_of(untroubled, batch))


def test_a_tuning_that_fails_at_its_end_changes_neither_what_acts_nor_what_learns(
    make_model, batch, shake, states_of, monkeypatch
):
    model = make_model()
    tune(model, TuneConfig.model_validate(SETTINGS[0]), seed=1, name="earlier")
    shake(model)
    states, before = states_of(model, batch), everything_of(model)
    monkeypatch.setattr("bertvision.encoder.tuning.tune.train_active", lambda model: train_active(model) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tune(model, TuneConfig.model_validate(SETTINGS[1]), seed=1)
    assert everything_of(model) == before
    assert torch.equal(states_of(model, batch), states)


def everything_of(model):
    """What a tuning could leave behind, but for values of weights."""
    flags = {name: param.requires_grad for name, param in model.named_parameters()}
    hooks = {name: (*each._forward_hooks, *each._forward_pre_hooks) for name, each in model.named_modules()}
    tunings = variants_of(model)
    return flags, hooks, set(model.__dict__), list(tunings.by_name), tunings.active, set(tunings.plain)


def test_an_unknown_kind_of_encoder_is_refused_and_the_known_ones_told():
    model = AlbertModel(AlbertConfig(vocab_size=9, embedding_size=4, hidden_size=8, num_attention_heads=2))
    with pytest.raises(EncoderError, match=r"AlbertModel \(albert\).*bert, camembert, deberta-v2") as caught:
        tune(model, TuneConfig(), seed=1)
    assert "\n" not in str(caught.value)


def test_an_encoder_inside_another_model_is_refused(make_model):
    with pytest.raises(EncoderError, match="cannot tune inside a BertForQuestionAnswering"):
        tune(BertForQuestionAnswering(make_model().config), TuneConfig(), seed=1)
