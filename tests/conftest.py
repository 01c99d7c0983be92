"""Loads the package with its shapes and types checked, and builds a tiny encoder without any network."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

from jaxtyping import install_import_hook

# Before anything of the package is imported, and for good. The tower: an int is a float, as for mypy.
PACKAGES = ["bertvision", "benchmarks", "studies"]
install_import_hook(PACKAGES, "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

import json
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import browser, pytest_collection_modifyitems, pytest_terminal_summary  # noqa: F401 (by their names)
from huggingface_hub.utils import close_session
from hypothesis import HealthCheck, settings
from transformers import BertConfig, BertModel, BertTokenizerFast

from bertvision.data.example import ChoiceRow, GoldAnswer, Question, Sentence, TextRow
from bertvision.encoder.load import Encoder
from bertvision.records import DataFile, Efficiency, Inference, Parameters, Provenance, RunRecord, Seconds
from bertvision.tasks import KINDS
from bertvision.training.device import Compute
from bertvision.training.objective import SPANS, Objective
from bertvision.windows.cut import cut_choices, cut_rows, cut_words
from bertvision.windows.window import WindowConfig, cut_windows

# How long an example takes says something about the machine alone.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# What a test writes need not outlast a power loss: 4 ms a file, of which a run has hundreds. tests/test_faults.py looks
# at what is synced, and when.
os.fsync = lambda handle: None

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
def no_network(monkeypatch):
    """A machine on which nobody has said that it is offline: the hub refuses connections, and waiting is a failure."""
    with socket.socket() as taken:  # bound and not listening
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}")
        monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail(f"waited {seconds} s for another try"))
        close_session()
        yield
        close_session()


@pytest.fixture
def cpu() -> Compute:
    return Compute(torch.device("cpu"), torch.float32)


def make_question(identity="q1", text="when was the weir built?", context="the weir was built in 1887", answer="1887"):
    """A question whose answer stands at its first place in the context; no answer: unanswerable."""
    answers = () if answer is None else (GoldAnswer(answer, context.index(answer)),)
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
    """Return a function of a kind of task: a few windows of it, which can be learned by heart, and its objective."""
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


MakeRecord = Callable[..., RunRecord]
RECORD_CONFIG = {
    "name": "squad2_small",
    "task": "squad2",
    "encoder": {"name": "gte-small", "max_length": 384},
    "finetune": {"fractions": [0.1, 1.0], "optim": {"lr": 0.0001, "schedule": "linear"}, "batch": {"tokens": 8192}},
    "heads": {"train": [{"name": "learned_pooling"}, {"name": "last_linear"}], "epochs": 1, "data_fraction": 1.0},
    "answers": {"null_threshold": 0.0},
    "seeds": [1, 2],
}


def invent_record(**changes: Any) -> RunRecord:
    """Invent a whole record; `changes` replace its fields."""
    fields: dict[str, Any] = {
        "experiment": "squad2_small",
        "task": "squad2",
        "model": "learned_pooling",
        "kind": "head",
        "fraction": 1.0,
        "seed": 1,
        "scores": {"exact": 53.6, "f1": 57.9, "best_f1": 65.7, "best_span_HasAns_f1": 80.2},
        "epoch_scores": [],
        "parameters": Parameters(total=60_000, trainable=60_000, encoder=30_000_000),
        "seconds": Seconds(finetune=100.0, heads=20.0, predict=5.0),
        "schedule_horizon": None,
        "data": {"dev": DataFile(name="dev.json", sha256="ab" * 32, examples=11_873, dropped=0, windows=12_134)},
        "encoder_fingerprint": "cd" * 32,
        "config": RECORD_CONFIG,
        "provenance": Provenance(
            commit="0123456789abcdef0123456789abcdef01234567",
            dirty=False,
            device="2 CPU cores",
            precision="float32",
            python="3.11.2",
            versions={"torch": "2.13.0"},
        ),
    }
    if "config" in changes:  # every record says these
        changes["config"] = {"heads": {"data_fraction": 1.0}, "answers": {"null_threshold": 0.0}, **changes["config"]}
    return RunRecord(**{**fields, **changes})


@pytest.fixture
def make_record() -> MakeRecord:
    """Return the inventor of records."""
    return invent_record


@pytest.fixture
def make_variant(make_record: MakeRecord) -> MakeRecord:
    """Return a function that invents a record of a variant."""

    def make(
        variant: str,
        model: str = "encoder",
        f1: float = 70.0,
        held_out: float | None = None,
        seed: int = 1,
        trainable: int = 1000,
        rate: float = 1e-4,
        fraction: float = 1.0,
        **config: Any,
    ) -> RunRecord:
        kind = "encoder" if model == "encoder" else "head"
        scores = {"exact": f1 - 3, "f1": f1, **({} if held_out is None else {"held_out_f1": held_out})}
        own = {"variant": variant, "finetune": {"lr": rate, **config.pop("finetune", {})}, **config}
        own = {"answers": {"null_threshold": 0.0}, **own, "heads": {"data_fraction": 1.0, **own.get("heads", {})}}
        head = next((each for each in own.get("heads", {}).get("train", []) if each["name"] == model), {})
        return make_record(
            experiment="efficiency",
            variant=variant,
            method=variant.partition("-lr")[0],
            model=model,
            variant_of=model.partition("-lr")[0] if "-lr" in model else None,
            kind=kind,
            encoder_lr=rate,
            lr=head.get("lr") or (None if kind == "encoder" else 1e-3),
            weight_decay=head.get("weight_decay"),
            seed=seed,
            fraction=fraction,
            scores=scores,
            parameters=Parameters(total=3000, trainable=trainable, encoder=2000),
            config=own,
            efficiency=Efficiency(
                encoder_seconds=100.0,
                heads_seconds=0.0,
                data_seconds=5.0,
                peak_process_bytes=3_000_000_000,
                peak_device_bytes=None,
                joules=None,
                ship_bytes=8_000_000,
                inference=Inference(seconds=12.5, latency=0.004, operations=6e12, windows=2000),
            ),
        )

    return make


@pytest.fixture(scope="session")
def records() -> list[RunRecord]:
    """Two fractions of an encoder, a head that weighs three layers, a control and an ensemble, each with two seeds."""
    return [
        invent_record(
            model=row,
            kind=kind,
            fraction=fraction,
            seed=seed,
            scores={"exact": score + seed, "f1": score + 4 + seed, "best_f1": score + 12, "best_span_HasAns_f1": 80.0},
            layer_weights=[0.2, 0.3, 0.5] if row == "learned_pooling" else None,
        )
        for fraction in (0.1, 1.0)
        for seed in (1, 2)
        for row, kind, score in (
            ("encoder", "encoder", 40.0),
            ("learned_pooling", "head", 42.0),
            ("last_linear", "control", 41.0),
            ("encoder+learned_pooling", "ensemble", 43.0),
        )
    ]


def invent_task(task: str, scores: dict[str, float], **changes: Any) -> list[RunRecord]:
    """Invent an experiment on a task, with a majority baseline and two seeds of an encoder and a head."""
    nothing = Parameters(total=0, trainable=0, encoder=0)
    common = {"experiment": task, "task": task, **changes}
    return [
        invent_record(model="majority", kind="baseline", scores=scores, parameters=nothing, fraction=None, **common),
        *(
            invent_record(
                model=row, kind=kind, seed=seed, scores={key: value + seed for key, value in scores.items()}, **common
            )
            for row, kind in (("encoder", "encoder"), ("learned_pooling", "head"))
            for seed in (1, 2)
        ),
    ]


@pytest.fixture
def make_task_records() -> Callable[..., list[RunRecord]]:
    """Return the inventor of experiments on any task."""
    return invent_task


@pytest.fixture
def signals_act():
    """Let signals do what they do in a terminal, also where tests run in the background or under nohup."""
    acting = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, action) for number, action in acting.items()}
    yield
    for number, action in before.items():
        signal.signal(number, action)


@pytest.fixture
def tiny(squad_file: Callable[..., Path], encoder_folder: Path) -> dict[str, Any]:
    """Settings of an experiment that takes a second: the same eight questions to learn from and to answer."""
    data = str(squad_file())
    return {
        "name": "tiny",
        "data": {"train": data, "dev": data},
        "encoder": str(encoder_folder),
        "windows": {"max_length": 24, "stride": 4},
        "device": "cpu",
    }
