import sys

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel

from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.tune import merge_tuning, remove_tuning, tune
from bertvision.errors import MissingExtraError

# Weights that LoRA of rank 2 adds to a projection of width 32: in and out for query and value of three blocks; one
# projection to three times the width in ModernBERT.
COUNTS = {"modernbert": 3 * 2 * (32 + 3 * 32)}


def test_lora_changes_query_and_value_of_every_block(make_model, kind):
    tuned = tune(make_model(kind), TuneConfig(train="none", insert="lora:2", train_norms=False), seed=1)
    assert tuned.sizes_by_part == {"LoRA": COUNTS.get(kind, 3 * 2 * 2 * (32 + 32))}


def test_lora_on_all_changes_every_linear_layer_of_the_blocks(make_model, kind):
    model = make_model(kind)
    blocks = [name for name, _ in model.named_modules() if isinstance(_, nn.ModuleList)][0]
    linear = {name: each for name, each in model.named_modules() if name.startswith(blocks) and type(each) is nn.Linear}
    expected = sum(2 * (each.in_features + each.out_features) for each in linear.values())
    tuned = tune(model, TuneConfig(train="none", insert="lora-all:2", train_norms=False), seed=1)
    assert tuned.sizes_by_part == {"LoRA": expected}
    assert {name.split(".lora_")[0] for name in tuned.sizes} == linear.keys()


def test_adapters_and_lora_go_together_and_leave_each_other_alone(make_model, kind, batch, shake, states_of):
    model = make_model(kind)
    before = states_of(model, batch)
    config = TuneConfig(train="none", insert="houlsby:4+lora-all:2", train_norms=False)
    tuned = tune(model, config, seed=1)
    assert tuned.sizes_by_part.keys() == {"adapters", "LoRA"}
    assert not any("adapters" in name and "lora" in name for name in tuned.sizes)
    shake(model)
    assert not torch.allclose(states_of(model, batch), before)
    remove_tuning(model)
    torch.testing.assert_close(states_of(model, batch), before, rtol=0, atol=0)


@pytest.mark.parametrize("rank", [4, 8])
def test_lora_on_bert_base_has_as_many_weights_as_its_paper_says(rank):
    with torch.device("meta"):
        model = BertModel(BertConfig())
        tuned = tune(model, TuneConfig(train="none", insert=f"lora:{rank}", train_norms=False), seed=1)
    assert tuned.trained == 12 * 2 * rank * (768 + 768)  # 0.3 M at rank 8 (Hu et al. 2021, table 2)


def test_lora_starts_as_the_plain_encoder(make_model, kind, batch, states_of):
    model = make_model(kind)
    before = states_of(model, batch)
    tune(model, TuneConfig(train="none", insert="lora:2"), seed=1)
    assert torch.equal(states_of(model, batch), before)


def test_lora_adds_the_product_of_its_two_matrices(make_model, shake):
    model = make_model()
    query = model.encoder.layer[0].attention.self.query
    weight, bias = query.weight.detach().clone(), query.bias.detach().clone()
    tune(model, TuneConfig(train="none", insert="lora:2"), seed=1)
    shake(model)
    changed = model.encoder.layer[0].attention.self.query
    low, high = (part["tuned"].weight for part in (changed.lora_A, changed.lora_B))
    x = torch.randn(3, 32)
    torch.testing.assert_close(changed(x), x @ (weight + high @ low).T + bias)


def test_merged_lora_gives_the_same_states_under_plain_names(make_model, kind, batch, shake, states_of):
    model = make_model(kind)
    names = model.state_dict().keys()
    tune(model, TuneConfig(train="none", insert="lora-all:2"), seed=1)
    shake(model)
    before = states_of(model, batch)
    merge_tuning(model)
    torch.testing.assert_close(states_of(model, batch), before, rtol=1e-4, atol=1e-4)
    assert model.state_dict().keys() == names


def test_without_peft_the_extra_is_named(make_model, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    model = make_model()
    with pytest.raises(MissingExtraError, match=r"pip install 'bertvision\[peft\]'"):
        tune(model, TuneConfig(train="none", insert="lora:2"), seed=1)
    assert "adapters" in tune(model, TuneConfig(train="none", insert="houlsby:2"), seed=1).sizes_by_part
