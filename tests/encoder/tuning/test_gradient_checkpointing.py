import pytest
import torch

from bertvision.encoder.tuning.blocks import disable_checkpointing, enable_checkpointing, is_checkpointing
from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.tune import tune
from bertvision.errors import EncoderError

KINDS = ("bert", "deberta-v2", "distilbert", "electra", "modernbert", "roberta")  # transformers' MPNet has none


def gradients_of(model, batch):
    """Of a step with dropout, which draws the same from the same seed."""
    model.zero_grad()
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model.train()(**batch).last_hidden_state.pow(3).sum().backward()
    return {name: param.grad for name, param in model.named_parameters() if param.requires_grad}


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("insert", ["houlsby:4", "pfeiffer:4", "lora:2"])
def test_gradient_checkpointing_changes_no_gradient(make_model, kind, insert, use_reentrant, batch, shake):
    model = make_model(kind)
    tune(model, TuneConfig(train="none", insert=insert, train_norms=False), seed=1)
    shake(model)
    expected = gradients_of(model, batch)
    enable_checkpointing(model, use_reentrant=use_reentrant)
    found = gradients_of(model, batch)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        assert gradient.any()
        torch.testing.assert_close(gradient, expected[name])


@pytest.mark.parametrize("kind", KINDS)
def test_parasites_refuse_gradient_checkpointing_where_they_would_learn(make_model, kind, batch):
    model = make_model(kind)
    tune(model, TuneConfig(train="none", train_norms=False, parasites={"length": 9}), seed=1)
    plain = model(**batch).last_hidden_state
    enable_checkpointing(model)
    with pytest.raises(EncoderError, match="wrong gradients; switch it off") as caught:
        model.train()(**batch)
    assert "\n" not in str(caught.value)
    torch.testing.assert_close(model.eval()(**batch).last_hidden_state, plain)  # nothing is run again
    disable_checkpointing(model)
    assert not is_checkpointing(model)
    gradients = gradients_of(model, batch)
    assert all(gradient is not None for gradient in gradients.values())
