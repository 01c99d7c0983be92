"""Loads the package with its shapes and types checked, and builds a tiny encoder without any network."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

from jaxtyping import install_import_hook

# Before anything of the package is imported, and for good. The tower: an int is a float, as for mypy.
install_import_hook("bertvision", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

import json
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizerFast

from bertvision.encoder.load import Encoder
from bertvision.features.choices import cut_choices
from bertvision.features.sentences import cut_rows
from bertvision.features.windows import WindowConfig, cut_windows
from bertvision.features.words import cut_words
from bertvision.kinds.catalog import KINDS
from bertvision.tasks.task import Answer, ChoiceRow, Question, Sentence, TextRow
from bertvision.training.device import Compute
from bertvision.training.objective import SPANS, Objective

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,?!'-"
WORDS = ["the", "river", "weir", "was", "built", "in", "1887", "by", "hannah", "coyle", "who", "when", "where", "stone"]


def make_tokenizer(words) -> BertTokenizerFast:
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*specials, *LETTERS, *(f"##{letter}" for letter in LETTERS), *words]
    return BertTokenizerFast(vocab={piece: number for number, piece in enumerate(pieces)}, model_max_length=512)


@pytest.fixture(scope="session")
def tokenizer() -> BertTokenizerFast:
    """A word-piece tokenizer that can spell every word of letters and digits."""
    return make_tokenizer(WORDS)


def make_encoder(name, tokenizer, *, hidden, layers, heads, seed=0) -> Encoder:
    """A tiny BERT with random weights, the same in every test."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=2 * hidden,
            max_position_embeddings=512,
        )
        model = BertModel(config)
    model.eval()
    return Encoder(name, model, tokenizer)


@pytest.fixture
def encoder(tokenizer) -> Encoder:
    """A two-layer BERT of width 32."""
    return make_encoder("tiny", tokenizer, hidden=32, layers=2, heads=4)


@pytest.fixture
def spelling_encoder() -> Encoder:
    """A one-layer BERT of width 16 whose tokenizer spells every word, unlike the one of `encoder`."""
    return make_encoder("spelling", make_tokenizer(()), hidden=16, layers=1, heads=2, seed=5)


@pytest.fixture
def encoder_folder(encoder, tmp_path) -> Path:
    """The tiny encoder as Hugging Face saves it."""
    folder = tmp_path / "tiny"
    encoder.model.save_pretrained(folder)
    encoder.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def saved_encoder(tokenizer, tmp_path_factory) -> Path:
    """The same folder for all tests that only read it."""
    folder = tmp_path_factory.mktemp("encoders") / "tiny"
    make_encoder("tiny", tokenizer, hidden=32, layers=2, heads=4).model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def cpu() -> Compute:
    return Compute(torch.device("cpu"), torch.float32)


def make_question(identity="q1", text="when was the weir built?", context="the weir was built in 1887", answer="1887"):
    """A question whose answer stands at its first place in the context; no answer: unanswerable."""
    answers = () if answer is None else (Answer(answer, context.index(answer)),)
    return Question(identity, text, context, answers, "weir")


@pytest.fixture
def questions() -> list[Question]:
    """Eight short questions, one of them unanswerable, with contexts of different lengths."""
    contexts = [
        ("the weir was built in 1887 by hannah coyle", "1887"),
        ("hannah coyle built the stone weir", "hannah coyle"),
        ("the river was in the stone", None),
        ("by the river, the weir. the weir was built by coyle in 1887", "coyle"),
        ("who built the stone weir in the river", "stone weir"),
        ("1887 was when the weir was built", "1887"),
        ("where the river was, the weir was built", "where the river was"),
        ("hannah was in the river when coyle built the weir by the stone", "coyle"),
    ]
    return [make_question(f"q{n}", "who built the weir?", text, answer) for n, (text, answer) in enumerate(contexts)]


@pytest.fixture
def make_task(tokenizer, questions):
    """Give a function of a kind of task: a few windows of it, which can be learned by heart, and its objective."""
    places, config = ["river", "weir", "stone"], WindowConfig(max_length=32, stride=8)
    pairs = [(f"who built the {one}?", f"by the {other}") for one in places for other in places[:2]]

    def rows(kind, label_of):
        examples = [TextRow(str(place), pair, label_of(place)) for place, pair in enumerate(pairs)]
        return cut_rows(examples, tokenizer, config.max_length, kind)

    def make(kind):
        match kind:
            case "span":
                return cut_windows(questions, tokenizer, config), SPANS
            case "answerable":
                return cut_windows(questions, tokenizer, config, answerable=True), Objective(KINDS[kind], 2)
            case "class":
                return rows(kind, lambda place: place // 2), Objective(KINDS[kind], 3)
            case "labels":
                return rows(kind, lambda place: (place % 2, int(place > 3))), Objective(KINDS[kind], 2)
            case "number":
                return rows(kind, lambda place: place / 2), Objective(KINDS[kind], 1)
            case "choice":
                turned = [tuple(places[turn:] + places[:turn]) for turn in (0, 1, 2)]
                examples = [ChoiceRow(str(n), "who built", each, each.index("stone")) for n, each in enumerate(turned)]
                return cut_choices(examples, tokenizer, config.max_length), Objective(KINDS[kind], 1, group=3)
            case "tags":
                words = [("hannah", "coyle", "built", "the", "weir")[:stop] for stop in range(2, 6)]
                examples = [
                    Sentence(str(n), each, ("B", "I", "O", "O", "B")[: len(each)], n) for n, each in enumerate(words)
                ]
                return cut_words(examples, ("O", "B", "I"), tokenizer, config), Objective(KINDS[kind], 3)

    return make


@pytest.fixture
def squad_file(questions, tmp_path):
    """Write questions as a SQuAD 2.0 file; gives a function of (name, questions)."""

    def write(name="data.json", chosen=None) -> Path:
        paragraphs = [
            {
                "context": each.context,
                "qas": [
                    {
                        "id": each.id,
                        "question": each.text,
                        "is_impossible": each.is_impossible,
                        "answers": [{"text": answer.text, "answer_start": answer.start} for answer in each.answers],
                    }
                ],
            }
            for each in (questions if chosen is None else chosen)
        ]
        path = tmp_path / name
        path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "weir", "paragraphs": paragraphs}]}))
        return path

    return write
