import pytest
import torch
from transformers import AlbertConfig, AlbertModel, BertForQuestionAnswering

from bertvision.errors import EncoderError, SettingsError
from bertvision.tuning.blocks import PARTS
from bertvision.tuning.config import TuneConfig
from bertvision.tuning.tune import tune, what_is_trained
from bertvision.tuning.variants import trained_state


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


def test_an_unknown_kind_of_encoder_is_refused_and_the_known_ones_told():
    model = AlbertModel(AlbertConfig(vocab_size=9, embedding_size=4, hidden_size=8, num_attention_heads=2))
    with pytest.raises(EncoderError, match=r"AlbertModel \(albert\).*bert, camembert, deberta-v2") as caught:
        tune(model, TuneConfig(), seed=1)
    assert "\n" not in str(caught.value)


def test_an_encoder_inside_another_model_is_refused(make_model):
    with pytest.raises(EncoderError, match="cannot tune inside a BertForQuestionAnswering"):
        tune(BertForQuestionAnswering(make_model().config), TuneConfig(), seed=1)
