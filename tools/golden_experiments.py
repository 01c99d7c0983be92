"""Twelve tiny experiments that together use every kind of task and every way to tune: what `tools/golden.py` runs.

All words are those of the oldest tree (commit 4be0c02); `tools/golden.yaml` says what they became.
"""

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Settings = dict[str, Any]

PLACES = ("river", "weir", "stone", "mill")
PEOPLE = ("hannah coyle", "john reed", "mary stone", "peter")
YEARS = ("1887", "1901", "1750", "1666")
ACTS = ("the {place} was built by {person}", "{person} was in the {place}", "by the {place}, in {year}, {person}")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,?!'-"
WORDS = ("the", "river", "weir", "was", "built", "in", "by", "hannah", "who", "when", "where", "mill", "1887")
PEOPLE_TAGS = ("B-PER", "I-PER")


class Command(NamedTuple):
    """A verb of `tools/golden.yaml` and the values for the places of its template."""

    verb: str
    values: dict[str, str]


class Experiment(NamedTuple):
    """Data files, settings files and the commands that are run on them, in order, in a folder of their own."""

    write: Callable[[Path], None]
    settings: dict[str, Settings]  # by file name, without .yaml
    commands: dict[str, Command]  # by the name of the file that takes what was printed
    reads_results: bool = False  # whether its commands read the tree's own results/


def build_encoder(folder: Path) -> None:
    """Write a two-layer BERT of width 32 with random weights, and a tokenizer that can spell every word."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*specials, *LETTERS, *(f"##{letter}" for letter in LETTERS), *WORDS]
    tokenizer = BertTokenizerFast(vocab={piece: number for number, piece in enumerate(pieces)}, model_max_length=512)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=512,
    )
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


# Data: train and dev of every kind, from fixed seeds.


def write_questions(folder: Path) -> None:
    """Write questions of which one in four has no answer; contexts are longer than a window."""
    for name, articles, seed in (("train", 6, 1), ("dev", 4, 2)):
        draw = random.Random(seed)
        data = [
            {"title": f"{name} {number}", "paragraphs": [_paragraph(draw, f"{name}{number}-{n}") for n in range(3)]}
            for number in range(articles)
        ]
        (folder / f"{name}.json").write_text(json.dumps({"version": "v2.0", "data": data}))


def _paragraph(draw: random.Random, identity: str) -> dict[str, Any]:
    here = draw.sample(PLACES, 3)
    people = draw.sample(PEOPLE, 3)
    years = draw.sample(YEARS, 3)
    facts = [f"the {place} was built by {who} in {year}." for place, who, year in zip(here, people, years, strict=True)]
    context = " ".join([facts[0], "it is by the stone, where the river was.", *facts[1:]])
    asked = [
        (f"who built the {here[1]}?", people[1]),
        (f"when was the {here[0]} built?", years[0]),
        (f"when was the {here[2]} built?", years[2]),
        (f"who built the {next(place for place in PLACES if place not in here)}?", None),
    ]
    return {"context": context, "qas": [_question(f"{identity}-{n}", *each, context) for n, each in enumerate(asked)]}


def _question(identity: str, text: str, answer: str | None, context: str) -> dict[str, Any]:
    answers = [] if answer is None else [{"text": answer, "answer_start": context.index(answer)}]
    return {"id": identity, "question": text, "is_impossible": answer is None, "answers": answers}


def _rows(seed: int, count: int) -> list[tuple[str, str, random.Random]]:
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        place = draw.choice(PLACES[:3])
        text = draw.choice(ACTS).format(place=place, person=draw.choice(PEOPLE), year=draw.choice(YEARS))
        rows.append((text, place, draw))
    return rows


def _write_table(folder: Path, header: list[str], make_rows: Callable[[int, int], list[list[str]]]) -> None:
    for name, count, seed in (("train", 48, 3), ("dev", 32, 4)):
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *make_rows(seed, count)])


def write_classes(folder: Path) -> None:
    """Write texts and the place that they name; one label in eight is wrong."""

    def make(seed: int, count: int) -> list[list[str]]:
        return [
            [text, draw.choice(PLACES[:3]) if draw.random() < 1 / 8 else place]
            for text, place, draw in _rows(seed, count)
        ]

    _write_table(folder, ["text", "label"], make)


def write_pairs(folder: Path) -> None:
    """Write pairs of texts, and whether both name one place."""

    def make(seed: int, count: int) -> list[list[str]]:
        rows = []
        for text, place, draw in _rows(seed, count):
            other = place if draw.random() < 0.5 else draw.choice(PLACES)
            rows.append([text, f"who built the {other}?", "same" if other == place else "other"])
        return rows

    _write_table(folder, ["text1", "text2", "label"], make)


def write_label_sets(folder: Path) -> None:
    """Write texts with a label for the place and one for the verb."""

    def make(seed: int, count: int) -> list[list[str]]:
        return [[text, ";".join([place, *(["built"] * ("built" in text))])] for text, place, _ in _rows(seed, count)]

    _write_table(folder, ["text", "label"], make)


def write_numbers(folder: Path) -> None:
    """Write texts with a number for the place, and noise."""

    def make(seed: int, count: int) -> list[list[str]]:
        return [
            [text, f"{1.5 * PLACES.index(place) - 1 + draw.gauss(0, 0.2):.3f}"]
            for text, place, draw in _rows(seed, count)
        ]

    _write_table(folder, ["text", "label"], make)


def write_choices(folder: Path) -> None:
    """Write beginnings with three endings, of which `stone` is always right."""

    def make(seed: int, count: int) -> list[list[str]]:
        draw = random.Random(seed)
        rows = []
        for _ in range(count):
            endings = draw.sample(["stone", *draw.sample(["river", "weir", "mill"], 2)], 3)
            rows.append([draw.choice(PEOPLE), "built the", *endings, str(endings.index("stone"))])
        return rows

    _write_table(folder, ["sent1", "sent2", "ending0", "ending1", "ending2", "label"], make)


def write_sentences(folder: Path) -> None:
    """Write words tagged with people, places and dates, in documents of four sentences."""
    for name, count, seed in (("train", 40, 5), ("dev", 24, 6)):
        lines = []
        for number, (text, place, _) in enumerate(_rows(seed, count)):
            lines += ["-DOCSTART- O", ""] if number % 4 == 0 else []
            words = text.replace(",", " ,").split()
            lines += [f"{word} {_tag(words, place_in, place)}" for place_in, word in enumerate(words)] + [""]
        (folder / f"{name}.conll").write_text("\n".join(lines))


def _tag(words: list[str], index: int, place: str) -> str:
    word = words[index]
    if word in YEARS:
        return "B-DAT"
    if word == place:
        return "B-LOC"
    person = next((each.split() for each in PEOPLE if word in each.split()), None)
    if person is None:
        return "O"
    return PEOPLE_TAGS[person.index(word)]


def write_text(folder: Path) -> None:
    """Write documents to pre-train on, and classes to tune the pre-trained encoder on."""
    documents = [" . ".join(text for text, _, _ in _rows(seed, 12)) for seed in range(100, 140)]
    (folder / "text.jsonl").write_text("".join(f"{json.dumps({'text': each})}\n" for each in documents))
    write_classes(folder)


# Experiments.

ROW_HEADS = ["learned_pooling", "ap_glue", "last_linear"]
SPAN_HEADS = ["learned_pooling", "adapter_64_shared_skip", "last_linear"]


def _settings(task: str, ending: str, train: list[Any], **changes: Any) -> Settings:  # noqa: ANN401 (any setting)
    """Return settings with states pinned and one thread's worth of work; `changes` replace whole sections."""
    return {
        "name": "golden",
        "task": task,
        "data": {"train": f"train.{ending}", "dev": f"dev.{ending}"},
        "encoder": "tiny",
        "windows": {"max_length": 48, "stride": 16},
        "finetune": {"fractions": [8], "batch": {"windows": 12}, "lr": 3e-3},
        "states": {"source": "live"},
        "heads": {"train": train, "epochs": 2, "batch": {"windows": 12}, "lr": 0.01},
        "ensembles": [{"of": ["encoder", train[0]], "how": "mean"}],
        "device": "cpu",
        **changes,
    }


def judging_commands(
    data: str, head: str, fraction: str = "8", *, out: str = "out", encoder: str = "encoder"
) -> dict[str, Command]:
    """Return every verb that judges a run; those that a kind of task refuses leave their refusal."""
    values = {
        "settings": "settings.yaml",
        "out": out,
        "data": data,
        "one": f"{out}/predictions/{fraction}/{encoder}",
        "other": f"{out}/predictions/{fraction}/{head}",
        "model": f"{out}/heads/{fraction}/{head}",
    }
    return {
        verb: Command(verb, values)
        for verb in (
            *("run", "score", "analyze", "against", "compare", "calibrate", "calibrate_model", "layers", "ensemble"),
            *("predict", "report"),
        )
    }


TWO_FRACTIONS = {"fractions": [0.5, 8], "batch": {"windows": 12}, "lr": 3e-3, "dropout": 0.0}
HELD_OUT = {"held_out": 0.25}
BOTH_DECODERS = {"decoders": ["official", "reader"]}
FILES = {"csv": {"train": "train.csv", "dev": "dev.csv"}, "json": {"train": "train.json", "dev": "dev.json"}}

REPORTS = ("squad2/catalog", "squad2/efficiency", "squad2/minilm", "squad2/paper_batch", "glue", "classification")
REPORTS += ("answerability", "swag", "ner")
STUDIES = ("squad2/efficiency", "glue")  # which `studies` draws in NEW

EXPERIMENTS: dict[str, Experiment] = {
    # Every weight, two fractions, two seeds, held-out questions that tune the threshold, both ensembles of spans.
    "spans": Experiment(
        write_questions,
        {
            "settings": _settings(
                "squad2",
                "json",
                SPAN_HEADS,
                data=FILES["json"] | HELD_OUT,
                finetune={**TWO_FRACTIONS, "fractions": [2, 16], "lr": 5e-3},
                seeds=[1, 2],
                answers=BOTH_DECODERS,
                ensembles=[
                    {"of": ["encoder", "learned_pooling"]},
                    {"of": ["encoder", "learned_pooling"], "how": "mean"},
                ],
            )
        },
        judging_commands("dev.json", "learned_pooling", "16"),
    ),
    # Houlsby's adapters beside trained norms; each head's best epoch.
    "answerable": Experiment(
        write_questions,
        {
            "settings": _settings(
                "answerability",
                "json",
                ROW_HEADS,
                tune={"train": "none", "insert": "houlsby:8"},
                finetune={**TWO_FRACTIONS, "lr": 0.01},
                heads={"train": ROW_HEADS, "epochs": 3, "batch": {"windows": 12}, "lr": 0.01, "keep_best": True},
            )
        },
        judging_commands("dev.json", "learned_pooling"),
    ),
    # LoRA on an encoder whose norms are frozen, mean pooling, the best weights by held-out rows.
    "classes": Experiment(
        write_classes,
        {
            "settings": _settings(
                "classification",
                "csv",
                [*ROW_HEADS, "regression"],
                data=FILES["csv"] | HELD_OUT,
                tune={"train": "none", "insert": "lora:4", "norms": False},
                finetune={**TWO_FRACTIONS, "lr": 0.02, "keep_best": True},
                states={"source": "live", "pooling": "mean"},
            )
        },
        judging_commands("dev.csv", "learned_pooling"),
    ),
    # The top block alone, with its bottom frozen (and live: the oldest tree could keep its output, which rounds
    # otherwise); several labels a row.
    "labels": Experiment(
        write_label_sets,
        {
            "settings": _settings(
                "multilabel",
                "csv",
                [*ROW_HEADS, "regression"],
                data=FILES["csv"] | {"separator": ";"},
                tune={"train": "top:1", "norms": False},
                finetune={**TWO_FRACTIONS, "lr": 5e-3, "fractions": [8], "bottom": "live"},
            )
        },
        judging_commands("dev.csv", "learned_pooling"),
    ),
    # Half of the single weights frozen.
    "numbers": Experiment(
        write_numbers,
        {"settings": _settings("regression", "csv", [*ROW_HEADS, "regression"], tune={"frozen_share": 0.5})},
        judging_commands("dev.csv", "learned_pooling"),
    ),
    # Parasites, and a linear schedule with warmup.
    "choices": Experiment(
        write_choices,
        {
            "settings": _settings(
                "swag",
                "csv",
                ROW_HEADS,
                tune={"train": "none", "parasites": {"width": 4, "length": 48}},
                finetune={**TWO_FRACTIONS, "optim": {"schedule": "linear", "warmup": 0.1}},
            )
        },
        judging_commands("dev.csv", "learned_pooling"),
    ),
    # Adapters and LoRA together; a readout that reads its neighbours.
    "tags": Experiment(
        write_sentences,
        {
            "settings": _settings(
                "ner",
                "conll",
                ["learned_pooling", {"name": "bilstm", "head": "bilstm_sum_all", "readout_width": 8}, "last_linear"],
                tune={"train": "bitfit", "insert": "pfeiffer:4+lora-all:2"},
                finetune={**TWO_FRACTIONS, "fractions": [8], "lr": 0.01},
            )
        },
        judging_commands("dev.conll", "bilstm"),
    ),
    # An encoder as given, compared texts, few rows: regressions of several sorts.
    "frozen": Experiment(
        write_pairs,
        {
            "settings": _settings(
                "classification",
                "csv",
                ["learned_pooling", "regression", "last_linear"],
                data=FILES["csv"] | {"columns": {"text": ["text1", "text2"], "label": "label"}},
                finetune={"fractions": []},
                states={"source": "live", "pooling": "compared", "layers": [0, 2]},
                ensembles=[{"of": ["learned_pooling", "regression"], "how": "mean"}],
            )
        },
        judging_commands("dev.csv", "learned_pooling", "given", encoder="regression"),
    ),
    "contrastive": Experiment(
        write_classes,
        {
            "settings": _settings(
                "classification",
                "csv",
                ["regression", "learned_pooling"],
                finetune={"objective": "contrastive", "fractions": [1], "pairs": 64, "lr": 1e-3},
            )
        },
        judging_commands("dev.csv", "learned_pooling", "1"),
    ),
    # A second encoder that learns from the first one's logits.
    "taught": Experiment(
        write_questions,
        {
            "teacher": _settings("squad2", "json", ["learned_pooling"], data=FILES["json"], ensembles=[]),
            "settings": _settings(
                "squad2",
                "json",
                SPAN_HEADS,
                finetune={**TWO_FRACTIONS, "teacher": {"model": "teacher/encoder/8", "share": 0.7}},
                answers=BOTH_DECODERS,
            ),
        },
        {
            "teach": Command("run", {"settings": "teacher.yaml", "out": "teacher"}),
            **judging_commands("dev.json", "adapter_64_shared_skip"),
        },
    ),
    "search": Experiment(
        write_classes,
        {
            "settings": _settings(
                "classification",
                "csv",
                ROW_HEADS,
                data=FILES["csv"] | HELD_OUT,
                search={"trials": 6, "group": 3, "head": ["learned_pooling", "last_linear"]},
            )
        },
        {"search": Command("search", {"settings": "settings.yaml", "out": "out"})},
    ),
    "pretraining": Experiment(
        write_text,
        {
            "pretraining": {
                "name": "golden",
                "data": {"train": ["text.jsonl"], "held_out_every": 8},
                "vocabulary": {"size": 110},
                "size": {"layers": 2, "hidden": 32, "heads": 4, "positions": 48},
                "stages": [{"length": 32, "steps": 20, "tokens": 512}, {"length": 48, "steps": 5, "tokens": 512}],
                "lr": 2e-3,
                "optim": {"warmup": 0.1},
                "evaluate_every": 10,
                "checkpoints": [10],
                "device": "cpu",
            },
            "settings": _settings("classification", "csv", ROW_HEADS, encoder="pretrained/encoder"),
        },
        {
            "pretrain": Command("pretrain", {"settings": "pretraining.yaml", "out": "pretrained"}),
            **judging_commands("dev.csv", "learned_pooling"),
        },
    ),
    # The pages of all committed results: those of OLD by OLD, those of NEW by NEW.
    "reports": Experiment(
        lambda folder: None,
        {},
        {
            name.replace("/", "_"): Command(
                "study_report" if name in STUDIES else "results_report", {"out": f"results/{name}", "page": name}
            )
            for name in REPORTS
        },
        reads_results=True,
    ),
}
