import pytest
import torch
from peft.tuners.lora import Linear
from torch import nn
from transformers import AlbertConfig, AlbertModel, BertForQuestionAnswering

from bertvision.encoder.tuning import adapters
from bertvision.encoder.tuning.blocks import PARTS
from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.freezing import set_trained
from bertvision.encoder.tuning.tune import trained_state, tune, tuning_of, what_is_trained
from bertvision.errors import EncoderError

SETTINGS = [
    {"train": "none", "insert": "houlsby:4"},
    {"train": "none", "insert": "lora:2"},
    {"train": "top:1", "parasites": {"width": 4, "length": 9}},
]


def test_every_known_kind_of_encoder_is_tested(make_model, kinds):
    assert set(kinds) == PARTS.keys()
    for kind in kinds:
        tuned = tune(make_model(kind), TuneConfig(train="none", insert="houlsby:4", train_norms=False), seed=1)
        assert tuned.sizes_by_part == {"adapters": 3 * 2 * (2 * 32 * 4 + 4 + 32)}


def test_a_tuning_says_what_it_trains(make_model):
    tuned = tune(make_model(), TuneConfig(train="none", insert="houlsby:4"), seed=1)
    adapters, norms = 3 * 2 * (2 * 32 * 4 + 4 + 32), (1 + 3 * 2) * 2 * 32
    assert tuned.sizes_by_part == {"norms": norms, "adapters": adapters}
    assert tuned.sizes["encoder.layer.0.attention.output.dropout.adapters.tuned.down.weight"] == 4 * 32
    assert str(tuned) == (
        f"{norms + adapters:,} of {tuned.total:,} weights are trained (norms {norms:,}, adapters {adapters:,})"
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


# What each of the settings calls several times while it inserts.
CALLED = [(adapters, "put_in"), (Linear, "update_layer"), (nn.Module, "register_forward_pre_hook")]


def failing(function, calls):
    """The same function, but for its third call, which is interrupted."""

    def fail(*args, **kwargs):
        calls.append(None)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return function(*args, **kwargs)

    return fail


@pytest.mark.parametrize(("settings", "function"), list(zip(SETTINGS, CALLED, strict=True)))
def test_a_tuning_that_fails_halfway_leaves_the_encoder_as_it_was(
    make_model, settings, function, batch, shake, states_of, monkeypatch
):
    model, untroubled = make_model(), make_model()
    for each in (model, untroubled):
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


def test_a_tuning_that_fails_at_its_end_changes_neither_states_nor_what_learns(
    make_model, batch, states_of, monkeypatch
):
    model = make_model()
    states, before = states_of(model, batch), everything_of(model)
    monkeypatch.setattr(
        "bertvision.encoder.tuning.tune.set_trained", lambda model, names: set_trained(model, names) or 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        tune(model, TuneConfig.model_validate(SETTINGS[1]), seed=1)
    assert everything_of(model) == before
    assert torch.equal(states_of(model, batch), states)


def everything_of(model):
    """What a tuning could leave behind, but for values of weights."""
    flags = {name: param.requires_grad for name, param in model.named_parameters()}
    hooks = {name: (*each._forward_hooks, *each._forward_pre_hooks) for name, each in model.named_modules()}
    return flags, hooks, set(model.__dict__), tuning_of(model)


def test_an_unknown_kind_of_encoder_is_refused_and_the_known_ones_told():
    model = AlbertModel(AlbertConfig(vocab_size=9, embedding_size=4, hidden_size=8, num_attention_heads=2))
    with pytest.raises(EncoderError, match=r"AlbertModel \(albert\).*bert, camembert, deberta-v2") as caught:
        tune(model, TuneConfig(), seed=1)
    assert "\n" not in str(caught.value)


def test_an_encoder_inside_another_model_is_refused(make_model):
    with pytest.raises(EncoderError, match="cannot tune inside a BertForQuestionAnswering"):
        tune(BertForQuestionAnswering(make_model().config), TuneConfig(), seed=1)
