"""Tiny encoders with random weights, one of every kind that can be tuned inside."""

import warnings

import pytest
import torch
from transformers import AutoConfig, AutoModel

SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
SPECIAL = {
    "distilbert": {"hidden_dim": 48},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "norm_rel_ebd": "layer_norm"},
    "electra": {"embedding_size": 16},
    "modernbert": {
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "cls_token_id": 1,
        "sep_token_id": 2,
        "attention_dropout": 0.1,
        "embedding_dropout": 0.1,
        "attn_implementation": "sdpa",
    },
}
KINDS = ("bert", "deberta-v2", "distilbert", "electra", "modernbert", "mpnet", "roberta")
LIKE_ROBERTA = ("camembert", "xlm-roberta")  # transformers has the same code under these names


@pytest.fixture(params=KINDS)
def kind(request):
    """Every kind of encoder that can be tuned inside, but for those that are RoBERTa by another name."""
    return request.param


@pytest.fixture
def kinds():
    """All of them at once, the others too."""
    return KINDS + LIKE_ROBERTA


@pytest.fixture
def make_model():
    """Gives a function of (kind, seed)."""
    return _make_model


def _make_model(kind="bert", seed=0):
    """A three-block encoder of width 32 in eval mode."""
    sizes = {key: value for key, value in SIZES.items() if not (kind == "distilbert" and key == "intermediate_size")}
    with torch.random.fork_rng(), warnings.catch_warnings():
        # transformers' DeBERTa calls torch.jit.script when it is first imported.
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
        torch.manual_seed(seed)
        return AutoModel.from_config(AutoConfig.for_model(kind, **sizes, **SPECIAL.get(kind, {}))).eval()


@pytest.fixture
def shake():
    """Gives a function that changes every weight that learns, as training would."""
    return _shake


def _shake(model, seed=7):
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(seed)
        for param in model.parameters():
            if param.requires_grad:
                param.add_(0.3 * torch.randn_like(param))


@pytest.fixture
def batch():
    """Two rows, the second one padded."""
    ids = torch.tensor([[5, 9, 12, 31, 7, 8, 6], [5, 22, 17, 6, 0, 0, 0]])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


@pytest.fixture
def states_of():
    """Gives a function that runs a model on a batch and stacks all states, without gradients."""
    return _states_of


def _states_of(model, batch):
    with torch.no_grad():
        return torch.stack(model(**batch, output_hidden_states=True).hidden_states)
