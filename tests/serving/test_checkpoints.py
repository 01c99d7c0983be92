"""Checkpoints that transformers fine-tuned: loaded with their output layer, equal to transformers' own forward."""

import json
import warnings

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoConfig,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedTokenizerFast,
)
from typer.testing import CliRunner

import bertvision
from bertvision.cli import app
from bertvision.data.example import Question, Sentence
from bertvision.data.held_out import write_squad
from bertvision.errors import BertVisionError, EncoderError, FolderError
from bertvision.heads.output_layer import CLASSES, NEVER
from bertvision.model_folder import load_model
from bertvision.steps.predict_file import predict_file

with warnings.catch_warnings():  # DeBERTa's code in transformers uses what torch will drop
    warnings.simplefilter("ignore", DeprecationWarning)
    import transformers.models.deberta.modeling_deberta
    import transformers.models.deberta_v2.modeling_deberta_v2  # noqa: F401

AUTO = {
    "questions": AutoModelForQuestionAnswering,
    "texts": AutoModelForSequenceClassification,
    "tokens": AutoModelForTokenClassification,
}
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 130,
}
# What the published checkpoints of a kind have, where it is not their config's default.
MORE = {
    "albert": {"embedding_size": 16},
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0},
    "deberta-v2": {  # version 3: `microsoft/deberta-v3-base`
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "position_buckets": 16,
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
    "electra": {"embedding_size": 16},
    "modernbert": {
        "local_attention": 16,
        "global_attn_every_n_layers": 2,
        **dict.fromkeys(("bos_token_id", "cls_token_id"), 2),
        **dict.fromkeys(("eos_token_id", "sep_token_id"), 3),
    },
}
BYTES = ("camembert", "roberta", "xlm-roberta")  # whose rows are <s> a </s></s> b </s>, without token types
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}  # float32, the same sums in another order
LABELS = ("O", "B-PER", "I-PER")
CONTEXT = "the weir was built in 1887 by hannah coyle, and the stone by the river was there"


@pytest.fixture(scope="session")
def byte_tokenizer():
    """RoBERTa's layout with bytes as tokens."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    bare = Tokenizer(models.BPE({piece: number for number, piece in enumerate(pieces)}, [], unk_token="<unk>"))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    names = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>"}
    inputs = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=bare, model_input_names=inputs, unk_token="<unk>", **names)


@pytest.fixture(scope="session")
def make_checkpoint(tokenizer, byte_tokenizer, tmp_path_factory):
    """Write a checkpoint with random weights as transformers does; gives a function of model type and purpose."""

    def make(kind="bert", purpose="questions", **settings):
        pieces = byte_tokenizer if kind in BYTES else tokenizer
        more = {"type_vocab_size": 1} if kind in BYTES else {"pad_token_id": 0}
        given = {"vocab_size": len(pieces), **SIZES, **more, **MORE.get(kind, {}), **settings}
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = AUTO[purpose].from_config(AutoConfig.for_model(kind, **given))
            for weight in model.parameters():  # as far from zero as trained ones, biases too
                torch.nn.init.normal_(weight, std=0.2)
        folder = tmp_path_factory.mktemp("checkpoints") / kind
        model.save_pretrained(folder)
        pieces.save_pretrained(folder)
        return folder

    return make


def transformers_logits(folder, purpose, rows):
    """Return what transformers' own class gives for rows of ids: of every token, or of the row."""
    model = AUTO[purpose].from_pretrained(folder, attn_implementation="eager").eval()
    found = []
    for row in rows:
        with torch.no_grad():
            output = model(**{name: torch.as_tensor(values)[None] for name, values in row.items()})
        logits = torch.stack([output.start_logits, output.end_logits], -1) if purpose == "questions" else output.logits
        found.append(logits.numpy().reshape(-1, logits.shape[-1]))
    return found


def rows_of(windows, tokenizer):
    """Return windows as transformers takes them: ids and, where the tokenizer has them, token types."""
    has_types = "token_type_ids" in tokenizer.model_input_names
    return [
        {"input_ids": window.ids.astype(np.int64)}
        | ({"token_type_ids": (np.arange(len(window)) >= window.context_at).astype(np.int64)} if has_types else {})
        for window in windows
    ]


@pytest.mark.parametrize("kind", CLASSES)
def test_a_readers_logits_are_those_of_transformers_for_every_window_of_a_batch(kind, make_checkpoint):
    folder = make_checkpoint(kind)
    reader = bertvision.load(folder, device="cpu", precision="float32")
    asked = [("who built the weir?", CONTEXT), ("when?", " ".join([CONTEXT] * 10)), ("where was hannah?", "in 1887")]
    questions = [Question(str(number), *each, (), "") for number, each in enumerate(asked)]
    windows = reader.served.answering(questions).windows
    assert len(windows) > 3  # the long context needs several
    rows = rows_of(windows, reader.served.tokenizer)
    for own, expected in zip(
        reader.served.logits_of_each(windows), transformers_logits(folder, "questions", rows), strict=True
    ):
        np.testing.assert_allclose(own, expected, **TOLERANCE)
    short = reader.served.tokenizer(*asked[0])  # transformers' own rows are ours
    assert short["input_ids"] == rows[0]["input_ids"].tolist()
    assert short.get("token_type_ids") in (None, rows[0].get("token_type_ids", np.zeros(0)).tolist())


@pytest.mark.parametrize("kind", CLASSES)
def test_a_classifiers_logits_are_those_of_transformers(kind, make_checkpoint):
    folder = make_checkpoint(kind, "texts", num_labels=3)
    model = bertvision.load(folder, device="cpu", precision="float32")
    texts, pair = ["the weir", CONTEXT], ("who built the weir?", "hannah coyle")
    tokenizer = model.served.tokenizer
    rows = [*(dict(tokenizer(text)) for text in texts), dict(tokenizer(*pair))]
    found = [*model(texts), model(*pair)]
    for own, expected in zip(found, transformers_logits(folder, "texts", rows), strict=True):
        shares = torch.softmax(torch.as_tensor(expected[0]), 0).tolist()
        assert own.probabilities == pytest.approx(dict(zip(["LABEL_0", "LABEL_1", "LABEL_2"], shares)), abs=1e-5)


@pytest.mark.parametrize("kind", CLASSES)
def test_a_taggers_logits_are_those_of_transformers(kind, make_checkpoint):
    folder = make_checkpoint(kind, "tokens", id2label=dict(enumerate(LABELS)))
    tagger = bertvision.load(folder, device="cpu", precision="float32")
    words = ("hannah", "coyle", "built", "the", "weir")
    windows = tagger.served.answering([Sentence("0", words, None, 0), Sentence("1", words[:2], None, 1)]).windows
    rows = rows_of(windows, tagger.served.tokenizer)
    for row, window in zip(rows, windows, strict=True):
        row |= {"token_type_ids": np.zeros(len(window), np.int64)} if "token_type_ids" in row else {}
    for own, expected in zip(
        tagger.served.logits_of_each(windows), transformers_logits(folder, "tokens", rows), strict=True
    ):
        np.testing.assert_allclose(own, expected, **TOLERANCE)
    assert tagger.served.config.labels == LABELS
    assert {word.tag for word in tagger("hannah coyle").words} <= set(LABELS)


def test_modernberts_classes_are_read_from_the_mean_where_its_config_says_so(make_checkpoint):
    folder = make_checkpoint("modernbert", "texts", num_labels=2, classifier_pooling="mean", norm_bias=True)
    model = bertvision.load(folder, device="cpu", precision="float32")
    row = dict(model.served.tokenizer(CONTEXT))
    ((expected,),) = transformers_logits(folder, "texts", [row])
    shares = torch.softmax(torch.as_tensor(expected), 0).tolist()
    assert list(model(CONTEXT).probabilities.values()) == pytest.approx(shares, abs=1e-5)
