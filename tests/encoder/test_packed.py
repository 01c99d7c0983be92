"""Packed and padded rows give the same states, losses and gradients."""

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModel

from bertvision.encoder.encode import encode, encode_cls
from bertvision.encoder.finetune import finetune_encoder
from bertvision.encoder.finetune_plan import FinetuneConfig
from bertvision.encoder.load import Encoder
from bertvision.encoder.packed import FIRST_POSITION_0, FIRST_POSITION_BEHIND_PADDING, can_pack
from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.tune import start_tuning
from bertvision.heads.config import HeadConfig
from bertvision.heads.training import build_heads
from bertvision.settings import validate
from bertvision.tasks import KINDS
from bertvision.training.device import Compute
from bertvision.windows.batches import collate, collate_to
from bertvision.windows.packing import packed_shape
from bertvision.windows.plan import lengths_of
from bertvision.windows.window import WindowConfig, cut_windows

# Sums of a few dozen float32 products in another order.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 140}
FOR_KIND = {"distilbert": {"hidden_dim": 48}, "electra": {"embedding_size": 16}}
PACKED = (*FIRST_POSITION_0, *FIRST_POSITION_BEHIND_PADDING)


def make_encoder(kind, tokenizer, seed=0):
    sizes = SIZES if kind == "distilbert" else {**SIZES, "intermediate_size": 48}
    config = AutoConfig.for_model(kind, vocab_size=len(tokenizer), pad_token_id=0, **sizes, **FOR_KIND.get(kind, {}))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Encoder(kind, AutoModel.from_config(config).eval(), tokenizer)


@pytest.fixture
def windows(tokenizer, questions):
    return cut_windows(questions, tokenizer, WindowConfig())


@pytest.fixture
def packed(windows):
    """Three of the windows in a shape that has room for all of them."""
    lengths = lengths_of(windows)
    shape = packed_shape(lengths, [np.arange(len(windows))])
    return collate_to(windows, np.array([4, 1, 6]), 0, shape, 3)


@pytest.mark.parametrize("kind", PACKED)
def test_packed_rows_have_the_states_of_padded_ones(kind, tokenizer, windows, packed):
    encoder = make_encoder(kind, tokenizer)
    padded = collate(windows, np.array([4, 1, 6]), 0)
    with torch.no_grad():
        expected, found = encode(encoder, padded), encode(encoder, packed)
    width = padded.ids.shape[1]
    for row, length in enumerate(padded.mask.sum(dim=1).tolist()):
        torch.testing.assert_close(found[row, :, :length], expected[row, :, :length], **CLOSE)
    assert not found[:3, :, width:].any()
    assert not found[3:].any()


def test_the_pooler_reads_the_first_token_of_every_packed_row(tokenizer, windows, packed):
    encoder = make_encoder("bert", tokenizer)
    with torch.no_grad():
        found, expected = encode_cls(encoder, packed), encode_cls(encoder, collate(windows, np.array([4, 1, 6]), 0))
    torch.testing.assert_close(found[:3], expected, **CLOSE)


def test_the_encoder_has_its_own_attention_again_afterwards(tokenizer, windows, packed):
    encoder = make_encoder("bert", tokenizer)
    before = encoder.model.config._attn_implementation
    encode(encoder, packed)
    assert encoder.model.config._attn_implementation == before


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # which transformers' DeBERTa calls
@pytest.mark.parametrize("kind", ["mpnet", "deberta-v2", "modernbert"])
def test_encoders_with_attention_of_their_own_are_not_packed(kind):
    sizes = {**SIZES, "intermediate_size": 48, "vocab_size": 40}
    assert not can_pack(AutoModel.from_config(AutoConfig.for_model(kind, **sizes, pad_token_id=0)))


def test_parasites_are_not_packed(tokenizer):
    encoder = make_encoder("bert", tokenizer)
    start_tuning(encoder.model, validate(TuneConfig, {"parasites": {"width": 4}}, "test"), 1)
    assert not can_pack(encoder.model)


def tuned(step, kind, encoder, windows, objective, **more):
    """Return all weights after some steps without dropout, and how far they have moved."""
    config = {"fractions": [2], "batch": {"windows": 4}, "lr": 1e-3, "dropout": 0, "step_mode": step, **more}
    config = validate(FinetuneConfig, config, "test")
    output = build_heads([HeadConfig.model_validate("last_linear")], encoder.shape, 1, objective)["last_linear"]
    both = nn.ModuleList([encoder.model, output])
    compute = Compute(torch.device("cpu"), torch.float32)
    for _ in finetune_encoder(encoder, output, windows, config, seed=1, compute=compute, objective=objective):
        pass
    return {name: tensor.clone() for name, tensor in both.named_parameters()}


@pytest.mark.parametrize("step", ["packed", "bucketed"])
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_step_learns_the_same(step, accumulate, kind, make_task, tokenizer):
    windows, objective = make_task(kind)
    more = {"accumulate": accumulate, "optim": {"eps": 1e-3}}  # Adam turns rounding of tiny gradients into full steps
    expected = tuned("eager", kind, make_encoder("bert", tokenizer), windows, objective, **more)
    found = tuned(step, kind, make_encoder("bert", tokenizer), windows, objective, **more)
    start = make_encoder("bert", tokenizer).model.state_dict()
    moved = max((found[name] - start[name.removeprefix("0.")]).abs().max() for name in found if name.startswith("0."))
    assert moved > 1e-4
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-5, msg=name)
