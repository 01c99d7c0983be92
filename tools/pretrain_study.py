"""Studies pre-training in small: tables 5 to 8 and figure 5 of BERT's paper, on books.

    python -m tools.pretrain_study DATA --work WORK --out RUNS.jsonl [--minutes 9] [--models mlm_nsp,ltr] [--table]

DATA has books/, squad2/, glue/ and ner/ (see `text_of` and TASKS for the files). WORK keeps text, tokens and encoders.
One JSON line for each pre-training, and for each task that one was fine-tuned on with all seeds; what the file holds
already is not run again. One encoder after the other is finished, so that a fresh WORK costs at most one pre-training.
A pre-training that does not end in time is saved, and the same command goes on with it. Once WORK/corpus is there,
several processes may share WORK and RUNS.jsonl, each with `--models` of its own. `--table` lays out what there is, and
what it allows to conclude. `--steps 50 --rows 64` tries everything out.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np

from bertvision.data.squad import read_squad_file
from bertvision.encoder.finetune import ENCODER
from bertvision.experiment import build_experiment
from bertvision.files import read_json, write_text
from bertvision.pretraining.config import PretrainConfig, build_pretraining
from bertvision.pretraining.pretrain import pretrain
from bertvision.progress import Silent
from bertvision.records import MAIN_SCORES
from bertvision.run_folder import SETTINGS_FINGERPRINT
from bertvision.settings import Settings, find_config, merge, read_yaml
from bertvision.stages.run import run

sys.path.append(str(Path(__file__).parents[1]))  # benchmarks and studies are in no wheel
from studies.verdicts import QUANTILES

REFERENCE, AGAIN = "mlm_nsp", "mlm_nsp, seed 2"
OURS = "ours"  # the largest, by configs/pretrain/books.yaml
SHARES = ("mask", "unchanged", "random")
HALF, TWICE, ONE_HEAD = "half the layers", "twice the layers", "one head"
# What each encoder differs in from the reference: masked words and next sentences, 80/10/10, of the size asked for.
MODELS: dict[str, Settings] = {
    REFERENCE: {},
    AGAIN: {"seed": 2},  # the same but for chance: differences below this one's say nothing
    "mlm": {"objective": "mlm"},
    "ltr": {"objective": "ltr"},
    **{
        f"mask {mask}/{same}/{random}": {
            "masking": dict(zip(SHARES, (mask / 100, same / 100, random / 100), strict=True))
        }
        for mask, same, random in ((100, 0, 0), (80, 0, 20), (80, 20, 0), (0, 20, 80), (0, 0, 100))
    },
    HALF: {},  # these three differ in size: `size_of`
    ONE_HEAD: {},
    TWICE: {},
    "mlm, 30%": {"objective": "mlm", "masking": {"fraction": 0.3}},
    "mlm, whole words": {"objective": "mlm", "masking": {"whole_words": True}},
    OURS: {},
}
CURVE = ("mlm", "ltr")  # encoders of figure 5, fine-tuned at these shares of their steps
CURVE_SHARES = (0.1, 0.25, 0.5, 0.75)
CURVE_TASK = "mnli_10k"
BILSTM, FEATURES = "ltr + bilstm", "ner features"
# Table 7's BiLSTMs on frozen states, and their F1 there; of most encoders that of table 8 alone is trained (the paper
# does not say which it is: the best of table 7).
FEATURES_HEAD = "bilstm_concat_last_four"
FEATURES_HEADS = {
    "bilstm_embeddings": "91.0",
    "bilstm_second_to_last": "95.6",
    "bilstm_last": "94.9",
    "bilstm_sum_last_four": "95.9",
    FEATURES_HEAD: "96.1",
    "bilstm_sum_all": "95.5",
}
WITH_ALL_FEATURES = (REFERENCE, AGAIN, OURS)
SEEDS = (1, 2, 3)
STEPS = 10_000
CORPUS = "corpus"  # vocabulary and tokens, below WORK
# Of tasks that are not judged by their main score: each encoder at its own best threshold; MRPC as the paper's tables.
SCORES = {"squad2": "best_f1", "mrpc": "accuracy"}
FINETUNE: Settings = {
    "windows": {"max_length": 128},
    "finetune": {
        "fractions": [3],
        "batch": {"windows": 32},
        "lr": 3e-4,
        "min_rows": 0,
        "min_steps": 0,
        "initial_bias": "zero",
        "optim": {"schedule": "linear", "warmup": 0.1},
    },
    "heads": {"train": [], "baseline": False},
    "states": {"pooling": "first"},
}


def glue(task: str, folder: str, **more: Any) -> Settings:  # noqa: ANN401 (settings)
    """Return the settings of a task of GLUE."""
    return {"task": task, "data": {"train": f"glue/{folder}/train.tsv", "dev": f"glue/{folder}/dev.tsv"}, **more}


TASKS: dict[str, Settings] = {
    "sst2": glue("sst2", "SST-2", finetune={"fractions": [1]}),
    "mrpc": glue("mrpc", "MRPC"),
    "rte": glue("rte", "RTE"),
    "stsb": glue("stsb", "STS-B"),
    "cola": glue("cola", "CoLA"),
    "mnli_10k": {
        "task": "classification",
        "data": {
            "train": "glue/MNLI-10k/mnli_train.tsv",
            "dev": "glue/MNLI-10k/mnli_validation.tsv",
            "columns": {"text": ["premise", "hypothesis"], "label": "label"},
            "quoted": True,
        },
    },
    "qqp_10k": {
        "task": "classification",
        "data": {
            "train": "glue/QQP-10k/test.tsv",
            "dev": "glue/QQP-10k/dev.tsv",
            "columns": {"text": [1, 2], "label": 0},
            "on_bad": "drop",
        },
    },
    "squad2": {
        "task": "squad2",
        "data": {"train": "squad2/train-open.json.gz", "dev": "squad2/dev-v2.0.json.gz"},
        "windows": {"max_length": 128, "stride": 64},
        "finetune": {"fractions": [2], "batch": {"tokens": 8192}},
    },
    # A seed is a fold of the one small file (see `experiment_for`).
    "ner": {
        "task": "ner",
        "data": {"train": "ner/bert-paper.conll", "folds": 5, "on_bad": "drop"},
        "finetune": {"fractions": [5], "batch": {"windows": 16}},
    },
    FEATURES: {
        "task": "ner",
        "data": {"train": "ner/bert-paper.conll", "folds": 5, "on_bad": "drop"},
        "finetune": {"fractions": []},
        "heads": {"train": [], "epochs": 6, "batch": {"windows": 16}},  # see `experiment_for`
    },
}
# What a model has that gives every row the commonest answer.
GUESSING = dict(zip(TASKS, (50.9, 68.4, 52.7, 0.0, 0.0, 35.5, 50.1, 50.1, 0.0, 0.0), strict=True))


def main() -> None:
    """Run what is not in the file yet until the time is up, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, default=Path("runs/pretrain_study"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--models", default=";".join(MODELS), help="names of MODELS with ; between them")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--size", default="6x256x4", help="layers x hidden x heads of the reference")
    parser.add_argument("--rows", type=int, help="take only so many rows of every training file")
    parser.add_argument("--keep", action="store_true", help="keep encoders that are finished with")
    parser.add_argument("--set", dest="settings", default="{}", help="JSON that goes on top of every pre-training")
    parser.add_argument("--table", action="store_true", help="lay out the file and end")
    given = parser.parse_args()
    if not given.table:
        study = Study(given, time.monotonic() + 60 * given.minutes)
        try:
            study.run_all()
        except OutOfTimeError as stop:
            print(f"stopped before {stop}: the same command goes on", flush=True)
    print(as_tables(read_runs(given.out)))


def size_of(model: str, reference: str) -> tuple[int, int, int]:
    """Return layers, hidden size and heads of an encoder; the reference's are LAYERSxHIDDENxHEADS."""
    layers, hidden, heads = map(int, reference.split("x"))
    sizes = {
        HALF: (max(1, layers // 2), hidden, heads),
        TWICE: (2 * layers, hidden, heads),
        ONE_HEAD: (layers, hidden, 1),
    }
    return sizes.get(model, (layers, hidden, heads))


class OutOfTimeError(Exception):
    """What comes next would not end in time."""


class Ending(Silent):
    """Interrupts a pre-training when the time is up; it is saved then."""

    def __init__(self, end: float) -> None:
        self._end = end

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator["Ending"]:
        """Open a bar that looks at the clock."""
        yield self

    def advance(self, amount: int, note: Any = None) -> None:  # noqa: ANN401 (never asked for)
        """Look at the clock."""
        if time.monotonic() > self._end:
            self._end = float("inf")
            signal.raise_signal(signal.SIGINT)

    def say(self, message: str) -> None:
        """Print one line."""
        print(message, flush=True)


class Study:
    """All runs that are asked for, one after the other."""

    def __init__(self, given: argparse.Namespace, end: float) -> None:
        self._given, self._end = given, end
        self._runs = read_runs(given.out)
        self._tasks = given.tasks.split(",")

    def run_all(self) -> None:
        """Finish one encoder after the other."""
        for model in self._given.models.split(";"):
            wanted = list(self._wanted(model))
            if not wanted and self._has(model, "pretrain"):
                continue
            out = self._given.work / model.replace(" ", "_").replace("/", "-").replace(",", "").replace("%", "")
            self._pretrain(model, out)
            for name, task, encoder in wanted:
                self._finetune(name, task, out / encoder)
            if not self._given.keep:
                shutil.rmtree(out)

    def _wanted(self, model: str) -> Iterator[tuple[str, str, str]]:
        """Return name, task and encoder of all fine-tunings of a pre-training that are not done yet."""
        names = [(model, task, "encoder") for task in self._tasks]
        if model == "ltr":
            names += [(BILSTM, task, "encoder") for task in self._tasks if task != FEATURES]
        if model in CURVE and CURVE_TASK in self._tasks:
            names += [(f"{model} @{step}", CURVE_TASK, f"steps/{step}") for step in self._checkpoints()]
        return (each for each in names if not self._has(*each[:2]))

    def _has(self, model: str, task: str) -> bool:
        return any(each["model"] == model and each["task"] == task for each in self._runs)

    def _checkpoints(self) -> list[int]:
        return sorted({max(1, round(share * self._given.steps)) for share in CURVE_SHARES})

    def _pretrain(self, model: str, out: Path) -> None:
        config = self.config_for(model)
        print(f"pre-training {model}", flush=True)
        try:
            record = pretrain(config, out, Ending(self._end))
        except KeyboardInterrupt:
            raise OutOfTimeError(f"the end of pre-training {model}") from None
        if not self._has(model, "pretrain"):
            told = record.model_dump(mode="json", include={"loss", "steps", "tokens", "seconds", "parameters"})
            told |= {
                "size": (config.size.layers, config.size.hidden, config.size.heads),
                "tokens_per_second": record.tokens_per_second,
                "peak_fraction": record.peak_fraction,
            }
            curve = [(each.step, each.score) for each in record.training if each.score is not None]
            self._add({"model": model, "task": "pretrain", **told, "curve": curve}, record.provenance.commit)

    def config_for(self, model: str) -> PretrainConfig:
        """Return the pre-training of a model."""
        given = self._given
        text, held_out = text_of(given.data, given.work)
        reference: Settings = {
            "name": "study",
            "data": {"train": text, "held_out": held_out, "folder": str(given.work / CORPUS)},
            "vocabulary": {"size": 16_000},
            "size": dict(zip(("layers", "hidden", "heads"), size_of(model, given.size), strict=True)),
            "stages": [{"length": 128, "steps": given.steps, "batch_tokens": 16_384}],
            "lr": 5e-4,  # ELECTRA-small's, of 12 x 256 and as many rows in a step
            "optim": {"warmup": 0.06},
            "evaluate_every": max(1, given.steps // 10),
            "checkpoints": self._checkpoints() if model in CURVE else [],
        }
        own = {**reference, **(self._books() if model == OURS else MODELS[model])}
        return build_pretraining(merge(own, json.loads(given.settings)), model)

    def _books(self) -> Settings:
        """Return in what `ours` differs: its size and stages, of as many steps as the others have."""
        found = read_yaml(find_config(Path("pretrain/books")))
        stages = [{**each, "steps": max(1, each["steps"] * self._given.steps // STEPS)} for each in found["stages"]]
        return {"size": found["size"], "stages": stages, "lr": found["lr"]}

    def _finetune(self, model: str, task: str, encoder: Path) -> None:
        before = [each["seconds"] for each in self._runs if each["task"] == task]
        if time.monotonic() + 1.3 * max(before, default=60.0) > self._end:
            raise OutOfTimeError(f"{model} on {task}")
        started, seeds = time.monotonic(), [int(seed) for seed in self._given.seeds.split(",")]
        name, scores = SCORES.get(task, MAIN_SCORES[TASKS[task]["task"]]), dict[str, list[float]]()
        for some in [[seed] for seed in seeds] if "folds" in TASKS[task]["data"] else [seeds]:
            place = self._given.work / f"finetuned-{os.getpid()}"
            shutil.rmtree(place, ignore_errors=True)
            settings = experiment_for(model, task, encoder, self._given.data, some, self._given.rows)
            records = run(build_experiment(settings, origin=f"{model}, {task}"), place)
            for each in sorted(records, key=lambda each: each.seed):
                if each.kind != "baseline" and name in each.scores:
                    scores.setdefault(each.model, []).append(round(each.scores[name], 3))
        shutil.rmtree(place, ignore_errors=True)
        commit, seconds = records[0].provenance.commit, round(time.monotonic() - started, 1)
        main = scores.pop(FEATURES_HEAD if task == FEATURES else ENCODER, [])
        for row, own in scores.items():
            self._add({"model": model, "task": row, "score": name, "scores": own}, commit)
        self._add({"model": model, "task": task, "score": name, "scores": main, "seconds": seconds}, commit)

    def _add(self, line: dict[str, Any], commit: str | None) -> None:
        self._runs.append({**line, "commit": commit})
        self._given.out.parent.mkdir(parents=True, exist_ok=True)
        with self._given.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self._runs[-1]) + "\n")
        print(json.dumps(self._runs[-1]), flush=True)


def text_of(data: Path, work: Path) -> tuple[list[str], list[str]]:
    """Return the files to pre-train on and those held out: the books, and contexts of questions to learn from.

    Where WORK/corpus was made of them already, they may be gone.
    """
    settings_fingerprint = work / CORPUS / SETTINGS_FINGERPRINT
    if settings_fingerprint.exists():
        made_of = read_json(settings_fingerprint)["data"]
        return made_of["train"], made_of["held_out"]
    contexts = work / "contexts.jsonl"
    if not contexts.exists():
        by_title: dict[str, dict[str, None]] = {}
        for question in read_squad_file(data / "squad2" / "train-open.json.gz").examples:
            by_title.setdefault(question.title, {})[question.context] = None
        lines = (json.dumps({"text": "\n\n".join(own)}) + "\n" for own in by_title.values())
        write_text(contexts, "".join(lines))
    books = sorted(map(str, (data / "books").glob("train-*.jsonl.xz")))
    return [*books, str(contexts)], [str(data / "books" / "held_out.jsonl.xz")]


LRS = {OURS: 1e-4}  # of fine-tuning, where not that of FINETUNE: what 12 x 384 has in the other experiments


def experiment_for(
    model: str, task: str, encoder: Path, data: Path, seeds: Sequence[int], rows: int | None
) -> Settings:
    """Return the settings of one task's fine-tuning; of tags a seed is a fold too."""
    settings = merge(FINETUNE, TASKS[task])
    files: Mapping[str, Any] = settings["data"]
    part = f"[:{rows}]" if rows is not None and "folds" not in files else ""
    found: Settings = {"train": f"{data / files['train']}{part}"}
    found |= {"dev": str(data / files["dev"])} if "dev" in files else {"fold": seeds[0]}
    settings = merge(settings, {"encoder": str(encoder), "seeds": list(seeds), "data": found})
    if task == FEATURES:
        heads = FEATURES_HEADS if model in WITH_ALL_FEATURES else [FEATURES_HEAD]
        trained = [{"name": each, "head": each, "readout_width": 128} for each in heads]
        settings = merge(settings, {"heads": {"train": trained}})
    if model in LRS:
        settings = merge(settings, {"finetune": {"lr": LRS[model]}})
    if model == BILSTM:
        return merge(settings, {"finetune": {"head": {"head": "bilstm_last", "readout_width": 128}}})
    if model.startswith("ltr"):  # its first token has seen nothing
        return merge(settings, {"states": {"pooling": "last"}})
    return settings


def read_runs(path: Path) -> list[dict[str, Any]]:
    """Read the finished runs; a line that a kill cut off is not one."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


# What BERT's paper has (SPEC of the project, section 12): other sizes, text and steps, so only directions compare.
PUBLISHED = {
    "Table 5 (MNLI-m, QNLI, MRPC, SST-2; SQuAD 1.1 F1)": {
        "mlm_nsp": "84.4, 88.4, 86.7, 92.7; 88.5",
        AGAIN: "",
        "mlm": "83.9, 84.9, 86.5, 92.6; 87.9",
        "ltr": "82.1, 84.3, 77.5, 92.1; 77.8",
        BILSTM: "82.1, 84.1, 75.7, 91.6; 84.9",
    },
    "Table 6 (perplexity; MNLI-m, MRPC, SST-2)": {
        HALF: "3 x 768, 12 heads: 5.84; 77.9, 79.8, 88.4",
        ONE_HEAD: "6 x 768, 3 heads: 5.24; 80.6, 82.2, 90.7",
        "mlm_nsp": "6 x 768, 12 heads: 4.68; 81.9, 84.8, 91.3",
        TWICE: "12 x 768, 12 heads: 3.99; 84.4, 86.7, 92.9",
    },
    "Table 8 (MNLI; NER fine-tuned, features)": {
        "mlm_nsp": "84.2; 95.4, 94.9",
        "mask 100/0/0": "84.3; 94.9, 94.0",
        "mask 80/0/20": "84.1; 95.2, 94.6",
        "mask 80/20/0": "84.4; 95.2, 94.7",
        "mask 0/20/80": "83.7; 94.8, 94.6",
        "mask 0/0/100": "83.6; 94.9, 94.6",
    },
    "Later work": {"mlm": "", "mlm, 30%": "", "mlm, whole words": ""},
    "The plain BERT": {REFERENCE: "", OURS: "ELECTRA-small, four days of a V100: MNLI 78.9, SST-2 88.3"},
}


class Claim(NamedTuple):
    """What the paper, or later work, says of two encoders."""

    text: str
    one: str
    other: str
    published: str = ""
    tasks: Sequence[str] = tuple(TASKS)  # that it is judged by, in the mean


def claims_of(first: int, half: int) -> list[Claim]:
    """List the claims; of figure 5's checkpoints after so many steps."""
    curve = (CURVE_TASK,)
    return [
        Claim("Next sentences help.", REFERENCE, "mlm", "QNLI +3.5, MRPC +0.2"),
        Claim("Reading in both directions helps.", "mlm", "ltr", "MRPC +9.0, SQuAD +10.1"),
        Claim("A BiLSTM helps what reads left to right, on spans.", BILSTM, "ltr", "SQuAD +7.1", ("squad2",)),
        Claim("Twice the layers are better.", TWICE, REFERENCE, "MNLI +2.5"),
        Claim("Half the layers are worse.", REFERENCE, HALF, "MNLI +4.0"),
        Claim("Several heads are better than one.", REFERENCE, ONE_HEAD, "MNLI +1.3 (12 and 3 heads)"),
        *(
            Claim(f"80/10/10 is better than {model[5:]}, for features.", REFERENCE, model, gain, (FEATURES,))
            for model, gain in (
                ("mask 100/0/0", "+0.9"),
                ("mask 80/0/20", "+0.3"),
                ("mask 80/20/0", "+0.2"),
                ("mask 0/20/80", "+0.3"),
                ("mask 0/0/100", "+0.3"),
            )
        ),
        Claim("80/10/10 is better than random words alone.", REFERENCE, "mask 0/0/100", "MNLI +0.6"),
        Claim("The second half of the steps helps.", "mlm", f"mlm @{half}", "MNLI +1.0", curve),
        Claim("Both directions are ahead after a tenth of the steps.", f"mlm @{first}", f"ltr @{first}", "yes", curve),
        Claim("30% masked words are better than 15%.", "mlm, 30%", "mlm"),
        Claim("Whole words are better to mask.", "mlm, whole words", "mlm"),
    ]


NOTE = """\
Tables have means and standard deviations over seeds of fine-tuning (of tags: folds), of one pre-training each.
"guessing" gives every row the commonest answer. Where an encoder is not above that, it has learned nothing for the
task, and the task says nothing about it. Held-out losses compare where rows are masked alike, as in table 6: other
shares, whole words, and left to right ask for other words, and the rows of `ours` are longer at its end. Checkpoints
before the last stand at rates that have not fallen yet, as in the paper. The paper has other sizes, other text and a
hundred times the steps: directions compare, points do not. QNLI is missing: only its dev file is at hand. SQuAD is
2.0, by its best F1, where the paper has 1.1. Of MNLI and QQP there are 10,000 rows to learn from."""


def as_tables(runs: Sequence[Mapping[str, Any]]) -> str:
    """Lay out every table of the paper with its published numbers, figure 5 as a table of steps, and the claims."""
    by_key = {(each["model"], each["task"]): each for each in runs}
    tables = [_table(title, published, by_key) for title, published in PUBLISHED.items()]
    return "\n\n".join([_pretrained(runs), *tables, _features(by_key), _curve(runs), NOTE, _conclusions(runs)])


def _lay_out(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"### {title}", "", f"| {' | '.join(head)} |", "| --- |" + " --- |" * (len(head) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _pretrained(runs: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for each in (each for each in runs if each["task"] == "pretrain"):
        share = each.get("peak_fraction")
        sizes = " x ".join(map(str, each["size"])), f"{each['parameters'] / 1e6:.1f}", f"{each['steps']:,}"
        spent = f"{each['tokens'] / 1e6:.0f}", f"{each['seconds'] / 60:.1f}", f"{each['tokens_per_second']:,.0f}"
        rows.append([each["model"], *sizes, *spent, "" if share is None else f"{100 * share:.1f}"])
    head = ["layers x hidden x heads", "million weights", "steps", "million tokens", "minutes", "tokens/s", "% of peak"]
    return _lay_out("What was pre-trained", ["encoder", *head], rows)


def _table(title: str, published: Mapping[str, str], by_key: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
    rows = [["guessing", "", "", *(f"{GUESSING[task]:.1f}" for task in TASKS), ""]]
    for model, told in published.items():
        own = by_key.get(("ltr" if model == BILSTM else model, "pretrain"))
        loss = None if own is None else own["loss"]
        cells = ["", ""] if loss is None else [f"{loss['words']:.3f}", f"{loss['perplexity']:.1f}"]
        rows.append([model, *cells, *(_scores(by_key, model, task) for task in TASKS), told])
    return _lay_out(title, ["encoder", "held-out loss", "perplexity", *TASKS, "published"], rows)


def _features(by_key: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
    places = {"ner": "96.4", **FEATURES_HEADS}
    tasks = {head: FEATURES if head == FEATURES_HEAD else head for head in places}
    rows = (
        ["fine-tuned" if head == "ner" else head]
        + [_scores(by_key, model, tasks[head]) for model in WITH_ALL_FEATURES]
        + [told]
        for head, told in places.items()
    )
    return _lay_out("Table 7 (NER)", ["features", *WITH_ALL_FEATURES, "published"], rows)


def _scores(by_key: Mapping[tuple[str, str], Mapping[str, Any]], model: str, task: str) -> str:
    return _mean(by_key[model, task]["scores"]) if (model, task) in by_key else ""


def _mean(scores: Sequence[float]) -> str:
    if not scores:
        return ""
    return f"{fmean(scores):.1f}" + (f" ± {stdev(scores):.1f}" if len(scores) > 1 else "")


def _steps_of(model: str, runs: Sequence[Mapping[str, Any]]) -> int:
    return next((each["steps"] for each in runs if (each["model"], each["task"]) == (model, "pretrain")), 0)


def _curve(runs: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for model in CURVE:
        own = {
            int(str(each["model"]).partition(" @")[2] or _steps_of(model, runs)): each["scores"]
            for each in runs
            if each["task"] == CURVE_TASK and str(each["model"]).partition(" @")[0] == model
        }
        rows += [[model, f"{step:,}", _mean(scores)] for step, scores in sorted(own.items())]
    return _lay_out(f"Figure 5: {CURVE_TASK} after steps", ["encoder", "steps", "score"], rows)


class Difference(NamedTuple):
    """How far one mean is above another, and to how much of it seeds alone may add up (95%)."""

    mean: float
    half: float


class Differences:
    """Differences between encoders, with intervals that chance of fine-tuning and of pre-training is in.

    What seeds of fine-tuning scatter by on a task is estimated from all encoders together: three scores of one say too
    little. By how much more two pre-trainings differ is known from the reference, which was made twice.
    """

    def __init__(self, runs: Sequence[Mapping[str, Any]]) -> None:
        self._scores: dict[str, dict[str, Sequence[float]]] = {}
        for each in runs:
            if each["task"] in TASKS:
                self._scores.setdefault(each["task"], {})[each["model"]] = each["scores"]
        again = [found for task in TASKS if (found := self._by_seeds(REFERENCE, AGAIN, task)) is not None]
        ratios = [(found.mean / found.half) ** 2 for found in again if found.half]
        self.tasks_again = len(ratios)
        # As a multiple of what seeds of fine-tuning explain: 95% halves are twice the standard error.
        self.widening = max(1.0, 2 * sqrt(fmean(ratios))) if ratios else 1.0

    def between(self, one: str, other: str, tasks: Sequence[str]) -> Difference | None:
        """Return the mean difference over tasks; None where one of them is missing.

        Errors are taken to go together: a pre-training that is lucky is so on all tasks.
        """
        found = [self._by_seeds(one, other, task) for task in tasks]
        if any(each is None for each in found):
            return None
        known = [each for each in found if each is not None]
        return Difference(fmean(each.mean for each in known), self.widening * fmean(each.half for each in known))

    def _by_seeds(self, one: str, other: str, task: str) -> Difference | None:
        scores = self._scores.get(task, {})
        size = max(map(len, scores.values()), default=0)
        whole = np.array([own for own in scores.values() if len(own) == size])
        if size < 2 or len(whole) < 2 or any(len(scores.get(model, ())) != size for model in (one, other)):
            return None
        left = whole - whole.mean(axis=1, keepdims=True) - whole.mean(axis=0) + whole.mean()  # folds differ for all
        free = (size - 1) * (len(whole) - 1)
        spread = sqrt(float((left**2).sum()) / free)
        half = QUANTILES[min(free, len(QUANTILES)) - 1] * spread * sqrt(2 / size)
        return Difference(fmean(scores[one]) - fmean(scores[other]), half)


def _conclusions(runs: Sequence[Mapping[str, Any]]) -> str:
    found, steps = Differences(runs), _steps_of("mlm", runs)
    checkpoints = [max(1, round(share * steps)) for share in CURVE_SHARES]
    rows, claims = [], claims_of(checkpoints[0], checkpoints[CURVE_SHARES.index(0.5)])
    for claim in claims:
        difference = found.between(claim.one, claim.other, claim.tasks)
        over = claim.tasks[0] if len(claim.tasks) == 1 else f"{len(claim.tasks)} tasks"
        cells = [claim.text, f"{claim.one} less {claim.other}", claim.published, over]
        rows.append([*cells, *(["", "not run"] if difference is None else _told(difference))])
    widened = (
        f"widened {found.widening:.1f} times: so much further apart than these explain are two pre-trainings that\n"
        f"differ in their seed alone (root mean square over {found.tasks_again} tasks)"
        if found.tasks_again
        else "and know nothing of chance in pre-training yet:\nthe reference's second one is missing"
    )
    note = (
        f"Intervals (95%) are Student's over seeds of fine-tuning, {widened}. Of {len(claims)} claims one may look\n"
        "settled by chance. An interval on both sides of 0 settles nothing: the difference may be as large as its ends."
    )
    head = ["claim", "difference", "published", "judged by", "here", "verdict"]
    return "\n\n".join([_lay_out("What can be concluded", head, rows), note])


def _told(difference: Difference) -> list[str]:
    mean, half = difference
    verdict = "cannot tell" if abs(mean) <= half else "yes" if mean > 0 else "the other way round"
    return [f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})", verdict]


if __name__ == "__main__":
    main()
