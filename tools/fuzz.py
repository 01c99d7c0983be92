"""Mutates what bertvision reads: data, settings, records, predictions, model folders, requests. Only its own errors may
come out. `make fuzz` runs 10,000 mutations of each; `tools/fuzz.py squad --first 412 --count 1` runs one of them again.
With `--processes 4` each of four takes every fourth.
"""

import argparse
import gzip
import json
import lzma
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT))  # studies, whose records of costs are read, are in no wheel
SECONDS = 30  # for one mutation; none takes one
MEMORY = 8 * 1024**3  # of addresses, beyond which memory is refused
PIECES = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\n",
    b"\t",
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xe2\x80\xa8",
    b"-1",
]
PIECES += [b"1e999", b"NaN", b"-Infinity", b"99999999999999999999", b"null", b"true", b"\\ud800", b"&a", b"*a", b"../"]
VALUES = [
    None,
    True,
    -1,
    0,
    10**6,
    10**12,
    10**30,
    1.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    " ",
    "../..",
    "/dev/zero",
]
VALUES += ["\ud800", "x" * 3000, "default", [], {}, [[]], {"a": {}}, [None] * 50, "nobody/nothing", "\n", "auto", "0"]
WORDS = ["the", "river", "weir", "was", "built", "in", "by", "hannah", "coyle", "who", "when", "stone", "1887"]


@dataclass(frozen=True)
class Target:
    """Files of a folder that are mutated, and what reads them."""

    name: str
    folder: Path
    files: tuple[str, ...]
    read: Callable[[Path], object]


def mutate(content: bytes, draw: random.Random) -> bytes:
    """Return a changed copy: of the JSON in it, where there is any, or of its bytes."""
    if draw.random() < 0.5 and (changed := _mutate_json(content, draw)) is not None:
        return changed
    size = int.from_bytes(content[:8], "little")  # of a safetensors file's header
    if (
        size < len(content)
        and draw.random() < 0.5
        and (header := _mutate_json(content[8 : 8 + size], draw)) is not None
    ):
        return len(header).to_bytes(8, "little") + header + content[8 + size :]
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        content = _mutate_bytes(content, draw)
    return content


def _mutate_bytes(content: bytes, draw: random.Random) -> bytes:
    first = draw.randint(0, len(content))
    end = min(len(content), first + draw.choice((0, 1, 1, 4, 64)))
    match draw.choice(("flip", "drop", "double", "insert", "cut", "swap")):
        case "flip" if first < len(content):
            return content[:first] + bytes([content[first] ^ (1 << draw.randrange(8))]) + content[first + 1 :]
        case "drop":
            return content[:first] + content[end:]
        case "double":
            return content[:end] + content[first:end] + content[end:]
        case "cut":
            return content[:first]
        case "swap":
            return content[:first] + draw.choice(PIECES) + content[end:]
    return content[:first] + draw.choice(PIECES) + content[first:]


def _mutate_json(content: bytes, draw: random.Random) -> bytes | None:
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        return None
    places = list(_places(parsed))
    if not places:
        return None
    holder, key = draw.choice(places)
    match draw.choice(("value", "value", "value", "drop", "twin", "rename", "deepen")):
        case "drop":
            del holder[key]
        case "rename" if isinstance(holder, dict):
            holder[draw.choice(("", "a", "format", "data", str(key) + "x"))] = holder.pop(key)
        case "twin" if isinstance(holder, dict) and holder is parsed:
            text = json.dumps(parsed)
            return f"{text[:-1]}, {json.dumps(key)}: {json.dumps(draw.choice(VALUES))}}}".encode(
                "utf-8", "surrogatepass"
            )
        case "deepen":
            holder[key] = [holder[key]]
        case _:
            holder[key] = draw.choice(VALUES)
    return json.dumps(parsed, ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")


def _places(parsed: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 (JSON)
    keys = list(parsed) if isinstance(parsed, dict) else range(len(parsed)) if isinstance(parsed, list) else ()
    for key in keys:
        yield parsed, key
        yield from _places(parsed[key])


def fuzz(target: Target, numbers: range, seed: int = 0) -> list[str]:
    """Read so many mutations, each drawn from its number alone; return what came out that is no error of ours."""
    from bertvision.errors import BertVisionError

    problems = []
    for number in numbers:
        draw = random.Random(f"{target.name} {seed} {number}")
        path = target.folder / draw.choice(target.files)
        content = path.read_bytes()
        path.write_bytes(mutate(content, draw))
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            target.read(target.folder)
        except BertVisionError as error:
            if not str(error).strip():
                problems.append(f"{target.name} {number} ({path.name}): an error without a word")
        except BaseException as error:  # also panics of libraries in Rust
            if isinstance(error, KeyboardInterrupt):
                raise
            where = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {str(error)[:120]!r} at {Path(where.filename).name}:{where.lineno}"
            problems.append(f"{target.name} {number} ({path.name}): {what}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            path.write_bytes(content)
    return problems


def _too_slow(number: int, frame: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


# What is read: each function makes the targets of one kind in a folder.


def data_targets(folder: Path) -> list[Target]:
    """Files of examples, in every layout."""
    import pyarrow
    import pyarrow.parquet

    from bertvision.data.example import DataConfig
    from bertvision.tasks import read_labelled

    def reader(task: str, name: str) -> Callable[[Path], object]:
        def read(place: Path) -> None:
            read_labelled(task, str(place / name), DataConfig(on_bad="fail"))
            read_labelled(task, str(place / name), DataConfig(on_bad="drop"), need="optional")

        return read

    rows = [{"text": f"the {word} was built", "label": word[0]} for word in WORDS]
    table = "text,label\n" + "".join(f'"{row["text"]}",{row["label"]}\n' for row in rows)
    choices = "sent1,sent2,ending0,ending1,label\n" + "".join(
        f"the {word},it,was,is,{len(word) % 2}\n" for word in WORDS
    )
    conll = "-DOCSTART- O\n\n" + "".join(f"{word} {'B-PER' if word == 'hannah' else 'O'}\n\n" for word in WORDS)
    squad = json.dumps(_squad()).encode()
    made = {
        ("squad", "squad2", "a.json"): squad,
        ("squad gzip", "squad2", "a.json.gz"): gzip.compress(squad, mtime=0),
        ("squad1", "squad1", "b.json"): squad,
        ("answerability", "answerability", "c.json"): squad,
        ("csv", "classification", "a.csv"): table.encode(),
        ("csv gzip", "classification", "a.csv.gz"): gzip.compress(table.encode(), mtime=0),
        ("tsv", "classification", "a.tsv"): table.replace(",", "\t").encode(),
        ("jsonl", "multilabel", "a.jsonl"): "".join(json.dumps(row) + "\n" for row in rows).encode(),
        ("numbers", "regression", "b.csv"): b"text,label\n" + b"".join(b"the weir,%d.5\n" % each for each in range(9)),
        ("glue", "rte", "b.tsv"): b"index\tsentence1\tsentence2\tlabel\n" + b"0\ta weir\tby it\tentailment\n" * 3,
        ("choices", "swag", "c.csv"): choices.encode(),
        ("conll", "ner", "a.conll"): conll.encode(),
    }
    for (_, _, name), content in made.items():
        (folder / name).write_bytes(content)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "a.parquet", compression="none")
    found = [Target(name, folder, (file,), reader(task, file)) for name, task, file in made]
    found.append(Target("parquet", folder, ("a.parquet",), reader("classification", "a.parquet")))
    return [*found, *_shard_targets(folder), *_document_targets(folder)]


def _shard_targets(folder: Path) -> list[Target]:
    """Rows of shards, taken for examples of every kind."""
    from bertvision.data.example import ColumnsConfig
    from bertvision.data.shards import ShardFormat, read_shard
    from bertvision.data.sources import BadExampleError
    from bertvision.data.text_format import TextFormat
    from bertvision.tasks import KINDS as KINDS_OF_TASKS

    rows: list[dict[str, Any]] = [{"id": 1, "text": "the weir"}, {"question": "who?", "context": "hannah"}]
    rows += [{"words": ["the", "weir"]}, {"ctx": "the", "endings": ["weir", "stone"], "label": 1}]
    (folder / "shard.jsonl.gz").write_bytes(gzip.compress("".join(f"{json.dumps(row)}\n" for row in rows).encode()))
    (folder / "shard.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def reader(name: str) -> Callable[[Path], object]:
        def read(place: Path) -> None:
            for row in read_shard(place / name, ShardFormat(TextFormat(), known_header=("text",)), lambda more: None):
                for kind in KINDS_OF_TASKS.values():
                    with suppress(BadExampleError):
                        kind.from_row("1", row, (ColumnsConfig(),), ("0", "1"))

        return read

    files = ("shard.jsonl", "shard.jsonl.gz", "a.csv", "a.tsv", "a.parquet")
    return [Target(f"shard {name}", folder, (name,), reader(name)) for name in files]


def _document_targets(folder: Path) -> list[Target]:
    """Texts to pre-train on."""
    from bertvision.data.documents import read_documents, sentences_of

    text = b"The weir was built in 1887. Hannah built it.\n\nIt holds."
    lines = b"".join(json.dumps({"text": word}).encode() + b"\n" for word in WORDS)
    made = {
        "a.txt": text,
        "a.txt.gz": gzip.compress(text, mtime=0),
        "b.jsonl": lines,
        "b.jsonl.xz": lzma.compress(lines),
    }
    for name, content in made.items():
        (folder / name).write_bytes(content)

    def reader(name: str) -> Callable[[Path], object]:
        return lambda place: [sentences_of(each) for each in read_documents([str(place / name)])]

    return [Target(f"documents {name}", folder, (name,), reader(name)) for name in made]


def _squad() -> dict[str, Any]:
    context = "The weir was built in 1887 by Hannah Coyle, of stone."
    qas = [
        {"id": "when", "question": "When?", "is_impossible": False, "answers": [{"text": "1887", "answer_start": 22}]},
        {"id": "who", "question": "Who?", "is_impossible": False, "answers": [{"text": "Hannah", "answer_start": 30}]},
        {"id": "why", "question": "Why?", "is_impossible": True, "answers": []},
    ]
    return {"version": "v2.0", "data": [{"title": "Weir", "paragraphs": [{"context": context, "qas": qas}]}]}


def settings_targets(folder: Path) -> list[Target]:
    """Experiments, `--set` and pre-trainings."""
    from bertvision.experiment import read_experiments
    from bertvision.pretraining.config import read_pretraining

    names = ("glue/rte/all_heads.yaml", "squad2/minilm.yaml", "squad2/efficiency.yaml")
    files = [path for name in names if (path := ROOT / "src/bertvision/configs" / name).is_file()] or sorted(
        ROOT.rglob("configs/**/*.yaml")
    )[:3]
    for number, path in enumerate(files):
        shutil.copy(path, folder / f"{number}.yaml")
    chosen = tuple(f"{number}.yaml" for number in range(len(files)))
    (folder / "set").write_text("heads.epochs=3")
    shutil.copy(ROOT / "src/bertvision/configs/pretrain/base.yaml", folder / "base.yaml")

    def read(place: Path) -> None:
        for name in chosen:
            read_experiments(place / name)

    def override(place: Path) -> None:
        read_experiments(place / chosen[0], [(place / "set").read_text(errors="surrogateescape")])

    return [
        Target("experiment", folder, chosen, read),
        Target("set", folder, ("set",), override),
        Target("pretraining", folder, ("base.yaml",), lambda place: read_pretraining(place / "base.yaml")),
    ]


def record_targets(folder: Path) -> list[Target]:
    """Records of runs, costs, differences and benchmarks."""
    from bertvision.records import read_differences, read_records
    from bertvision.records.methods import read_bench_records
    from studies.cost_records import read_costs

    readers = {
        "record": read_records,
        "bench": read_bench_records,
        "differences": read_differences,
        "costs": read_costs,
    }
    patterns = {
        "record": "records.jsonl.xz",
        "bench": "bench/*.json",
        "differences": "differences.json",
        "costs": "costs/*.json",
    }
    targets = []
    for kind, reader in readers.items():
        paths = sorted((ROOT / "results").rglob(patterns[kind]), key=lambda path: (path.stat().st_size, path))[:2]
        if not paths:
            continue
        place = folder / kind / ("costs" if kind == "costs" else "")
        place.mkdir(parents=True)
        for path in paths[: 1 if kind == "differences" else 2]:
            shutil.copy(path, place)
        if kind == "record":  # also one with a file of its own, as runs write them
            alone = lzma.decompress(paths[0].read_bytes()).splitlines()[0]
            (place / "encoder-1-seed1.json").write_bytes(alone)
        names = tuple(path.name for path in place.iterdir())
        targets.append(Target(kind, place, names, lambda own, reader=reader, kind=kind: reader(folder / kind)))
    return targets


def model_targets(folder: Path) -> list[Target]:
    """Model folders, as torch and as onnxruntime read them, and adapters; each is asked something where it loads."""
    import bertvision
    from bertvision.encoder.load import load_encoder
    from bertvision.encoder.tuning.adapter_file import ADAPTERS, save_adapters, save_plain
    from bertvision.encoder.tuning.config import TuneConfig
    from bertvision.encoder.tuning.tune import tune
    from bertvision.serving.onnx_export import export_onnx
    from bertvision.serving.onnx_graph import check_operators

    write_model(folder / "torch", "squad2", ())
    export_onnx(folder / "torch", folder / "onnx")
    encoder = load_encoder(str(folder / "torch"))
    tune(encoder.model, TuneConfig(train="none", insert="houlsby:2"), seed=0)
    save_plain(folder / "adapters", encoder.model)
    encoder.tokenizer.save_pretrained(folder / "adapters")
    save_adapters(folder / "adapters" / ADAPTERS, encoder.model)

    def ask(place: Path) -> None:
        bertvision.load(place, device="cpu")("who built the weir?", "the weir was built by hannah coyle", top_k=2)

    own = (
        "model.json",
        "calibration.json",
        "head.safetensors",
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    )
    graph = ("model.json", "calibration.json", "model.onnx", "tokenizer.json", "tokenizer_config.json")
    return [
        Target("model folder", folder / "torch", (*own, "model.safetensors"), ask),
        Target("onnx folder", folder / "onnx", graph, ask),
        Target("onnx operators", folder / "onnx", ("model.onnx",), lambda place: check_operators(place / "model.onnx")),
        Target("adapters", folder / "adapters", (ADAPTERS,), lambda place: load_encoder(str(place))),
    ]


def write_model(folder: Path, task: str, labels: tuple[str, ...]) -> None:
    """Write a tiny model with random weights."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    from bertvision.encoder.encode import shape_of_states
    from bertvision.encoder.load import Encoder
    from bertvision.files import write_json
    from bertvision.heads.build import build_head, pooling_of
    from bertvision.heads.config import HeadConfig
    from bertvision.model_folder import ModelConfig, save_encoder
    from bertvision.predictions.prediction import AnswerConfig
    from bertvision.tasks import TASKS
    from bertvision.training.checkpoint import fingerprint
    from bertvision.training.objective import objective_of
    from bertvision.windows.window import WindowConfig

    torch.manual_seed(0)
    letters = [piece for letter in "abcdefghijklmnopqrstuvwxyz0123456789?.," for piece in (letter, f"##{letter}")]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(word for word in WORDS if len(word) > 1)]
    tokenizer = BertTokenizerFast(vocab={piece: number for number, piece in enumerate(pieces)}, model_max_length=64)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    encoder = BertModel(BertConfig(vocab_size=len(pieces), max_position_embeddings=64, **sizes)).eval()
    head = HeadConfig.model_validate("learned_pooling")
    objective = objective_of(TASKS[task].kind, labels)
    shape = shape_of_states(Encoder("tiny", encoder, tokenizer), pooling=pooling_of(head, objective))
    built = build_head(head, shape, objective)
    config = ModelConfig(
        head=head,
        layers=shape.layers,
        hidden=shape.hidden,
        encoder=".",
        encoder_is_path=True,
        encoder_fingerprint=fingerprint(encoder),
        task=task,
        labels=labels,
        windows=WindowConfig(max_length=32, stride=4, max_question_length=8),
        answers=AnswerConfig(max_answer_length=4, batch_tokens=64),
    )
    save_encoder(folder, Encoder("tiny", encoder, tokenizer), built.eval(), config)
    write_json(folder / "calibration.json", {"threshold": 0.5, "temperature": 1.5})


def prediction_targets(folder: Path) -> list[Target]:
    """Prediction folders of questions (logits among them), of classes and of tags, and calibration on them."""
    from bertvision.evaluate.calibrate import calibrate_folder
    from bertvision.evaluate.ensemble import choose_way, ensemble_folders
    from bertvision.evaluate.score import analyze_folder, score_file
    from bertvision.serving.predict import predict_file

    write_model(folder / "model", "squad2", ())
    gold, tags, classes = folder / "gold.json", folder / "gold.conll", folder / "gold.tsv"
    gold.write_text(json.dumps(_squad()))
    tags.write_text("hannah B-PER\ncoyle I-PER\n\nthe O\n")
    classes.write_text("sentence\tlabel\na weir\t1\nno weir\t0\n")
    for place in ("one", "two"):
        predict_file(folder / "model", str(gold), folder / place, {"device": "cpu"})
        (folder / place / "sha256.json").unlink()  # as another program writes them: else their hashes refuse them all
    for place, given, more in (
        ("classes", {"0": "1", "1": "0"}, {"0": {"0": 0.25, "1": 0.75}, "1": {"0": 0.5, "1": 0.5}}),
        ("tags", {"0": ["B-PER", "O"], "1": ["O"]}, {}),
    ):
        (folder / place).mkdir()
        (folder / place / "predictions.json").write_text(json.dumps(given))
        (folder / place / "probabilities.json").write_text(json.dumps(more))

    def read(place: Path) -> None:
        score_file("squad2", str(gold), place / "predictions.json", place / "null_odds.json")
        analyze_folder(place, str(gold))

    def combine(place: Path) -> None:
        ensemble_folders([place, folder / "two"], str(gold), folder / "made", choose_way("logits"))

    official = folder / "one" / "official"
    names = ("predictions.json", "null_odds.json", "nbest_predictions.json", "best_spans.json")
    return [
        Target("predictions", official, names, read),
        Target("logits", folder / "one", ("logits.safetensors",), combine),
        Target("calibrate", official, names, lambda place: calibrate_folder(place, str(gold), place, str(gold))),
        Target(
            "class predictions",
            folder / "classes",
            ("predictions.json", "probabilities.json"),
            lambda place: analyze_folder(place, str(classes), task="sst2"),
        ),
        Target(
            "tag predictions", folder / "tags", ("predictions.json",), lambda place: score_file("ner", str(tags), place)
        ),
    ]


def request_targets(folder: Path) -> list[Target]:
    """Bodies of requests; whatever they hold, the server says what is wrong, and is not at fault."""
    from starlette.testclient import TestClient

    import bertvision
    from bertvision.serving.http.app import build_app
    from bertvision.serving.http.config import ServeConfig

    models = {"reader": ("squad2", ()), "tagger": ("ner", ("O", "B-PER", "I-PER")), "classifier": ("sst2", ("0", "1"))}
    for name, (task, labels) in models.items():
        write_model(folder / name, task, labels)
    app = build_app({name: bertvision.load(folder / name, device="cpu") for name in models}, ServeConfig())
    client = TestClient(app, raise_server_exceptions=False).__enter__()
    bodies = {
        "answer": {"model": "reader", "question": ["who?"], "context": ["the weir"], "top_k": 2, "null_threshold": 0.5},
        "xray": {"model": "reader", "question": "who?", "context": "the weir was built", "start": 4, "end": 8},
        "classify": {"model": "classifier", "text": ["a weir"], "other": None},
        "tag": {"model": "tagger", "text": ["hannah coyle"]},
    }
    targets = []
    for name, body in bodies.items():
        (folder / name).write_text(json.dumps(body))

        def post(place: Path, name: str = name) -> None:
            content = (place / name).read_bytes()
            answer = client.post(f"/{name}", content=content, headers={"Content-Type": "application/json"})
            assert answer.status_code < 500, f"status {answer.status_code}: {answer.text[:100]}"
            json.loads(answer.text)

        targets.append(Target(f"request {name}", folder, (name,), post))
    return targets


def unfinished_targets(folder: Path) -> list[Target]:
    """What a stopped command goes on with: the tokens of a pre-training, the file of a search, finished shards."""
    from bertvision.pretraining.config import build_pretraining
    from bertvision.pretraining.corpus import prepare_corpus
    from bertvision.search.study import ask, finished_trials, opened_study, quiet_optuna, tell
    from bertvision.search_space import Range, Space
    from bertvision.serving.shards import predict_shards, read_counts

    (folder / "text.txt").write_text("the weir was built in 1887 by hannah coyle.\n\n" * 9)
    (folder / "more.txt").write_text("of stone.")
    write_model(folder / "model", "sst2", ("0", "1"))
    data = {"train": str(folder / "text.txt"), "held_out": str(folder / "more.txt")}
    pretraining = build_pretraining({"data": data, "vocabulary": {"encoder": str(folder / "model")}})
    prepare_corpus(pretraining, folder / "corpus")
    tokens = [
        f"{part}/{name}" for part in ("train", "held_out") for name in ("ids.bin", "sentences.bin", "sha256.json")
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps({"sentence": word}) + "\n" for word in WORDS))
    predict_shards(folder / "model", [str(folder / "rows.jsonl")], folder / "out", {"device": "cpu"})

    def read_search(place: Path) -> None:
        with quiet_optuna(), opened_study(place / "search.db", "tiny", {"lr": 1}) as study:
            finished_trials(study)

    rates = Space("heads", {"lr": Range(low=1e-4, high=1e-2)}, {})
    with quiet_optuna(), opened_study(folder / "search.db", "tiny", {"lr": 1}) as study:
        for asked in ask(study, rates, group=3, wanted=3, seed=1):
            asked.trial.add(1, 1, 50.0)
            tell(study, asked, group=0, score=50.0)
    return [
        Target(
            "corpus",
            folder / "corpus",
            (*tokens, "settings_fingerprint.json"),
            lambda place: prepare_corpus(pretraining, place),
        ),
        Target("search", folder, ("search.db",), read_search),
        Target(
            "shards",
            folder / "out",
            ("rows.jsonl", "finished/rows.jsonl.json"),
            lambda place: read_counts([str(folder / "rows.jsonl")], place),
        ),
    ]


KINDS = (
    data_targets,
    settings_targets,
    record_targets,
    prediction_targets,
    model_targets,
    unfinished_targets,
    request_targets,
)


def make_targets(folder: Path) -> list[Target]:
    """Make everything that is mutated."""
    targets = []
    for kind in KINDS:
        place = folder / kind.__name__
        place.mkdir()
        targets += kind(place)
    return targets


def main() -> None:
    """Run mutations of all targets, or of those that are named, and print what came out that should not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="targets; without any, all")
    parser.add_argument("--count", type=int, default=10_000, help="mutations of each")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1, help="that share the mutations")
    given = parser.parse_args()
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as pool:
        found = sum(pool.map(partial(run_part, given), range(given.processes)))
    sys.exit(1 if found else 0)


def run_part(given: argparse.Namespace, part: int) -> int:
    """Run one process's share of the mutations on targets of its own, and return how many problems it found."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _too_slow)
    numbers, found = range(given.first + part, given.first + given.count, given.processes), 0
    with tempfile.TemporaryDirectory() as folder:
        for target in make_targets(Path(folder)):
            if given.names and target.name not in given.names:
                continue
            started = time.perf_counter()
            problems = fuzz(target, numbers, given.seed)
            seconds = time.perf_counter() - started
            told = f"{target.name}: {len(numbers):,} mutations in {seconds:.0f} s, {len(problems)} problems\n"
            print(told + "".join(f"  {problem}\n" for problem in problems[:10]), end="", flush=True)  # noqa: T201
            found += len(problems)
    return found


if __name__ == "__main__":
    main()
