import pytest
import torch
from transformers import MPNetConfig, MPNetModel

from bertvision.encoder.load import fuse_attention


@pytest.fixture
def model():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    model = MPNetModel(MPNetConfig(vocab_size=40, max_position_embeddings=64, **sizes)).eval()
    torch.nn.init.normal_(model.encoder.relative_attention_bias.weight)  # transformers starts it near 0
    return model


@pytest.fixture
def batch():
    ids = torch.randint(3, 40, (3, 50), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(50) < torch.tensor([50, 31, 2])[:, None]
    return {"input_ids": ids.masked_fill(~mask, 1), "attention_mask": mask.long()}


def run(model, batch):
    """Return the real tokens' states and the gradients of their sum of squares."""
    model.zero_grad()
    state = model(**batch).last_hidden_state[batch["attention_mask"].bool()]
    state.square().sum().backward()
    return state.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_the_fused_attention_gives_transformers_own_states_and_gradients(model, batch):
    expected, expected_gradients = run(model, batch)
    fuse_attention(model)
    found, gradients = run(model, batch)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)  # the same sums in another order
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected_gradients[name], rtol=1e-3, atol=1e-3, msg=name)


def test_attention_weights_are_still_given_where_they_are_asked_for(model, batch):
    expected = model(**batch, output_attentions=True).attentions
    fuse_attention(model)
    for found, own in zip(model(**batch, output_attentions=True).attentions, expected, strict=True):
        torch.testing.assert_close(found, own)


def test_dropout_acts_in_training(model, batch):
    fuse_attention(model)
    model.train()
    assert not torch.equal(model(**batch).last_hidden_state, model(**batch).last_hidden_state)
