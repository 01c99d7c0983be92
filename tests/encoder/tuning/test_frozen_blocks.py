import pytest
import torch

from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.freezing import (
    first_above_bottom,
    quiet_bottom,
    set_trained,
    trained_names,
)
from bertvision.encoder.tuning.tune import start_tuning


def train(model, setting):
    config = TuneConfig(train=setting, train_norms=False)
    set_trained(model, trained_names(model, config.trained, norms=config.train_norms))
    return model.train()  # dropout on above


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"train": "top:1", "train_norms": False}, 3),
        ({"train": "none", "train_norms": False}, 4),
        ({"train": "top:3", "train_norms": False}, None),  # below lie the embeddings alone
        ({"train": "top:1"}, None),  # the embeddings' norm learns
        ({"train": "none", "train_norms": False, "insert": "houlsby:4"}, None),
        ({"train": "bitfit", "train_norms": False}, None),
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
