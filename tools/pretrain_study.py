"""Studies pre-training in small: tables 5, 6 and 8 and figure 5 of BERT's paper, on books.

    python -m tools.pretrain_study DATA --work WORK --out RUNS.jsonl [--minutes 9] [--models mlm_nsp,ltr] [--table]

DATA has books/, squad2/, glue/ and ner/ (see `text_of` and TASKS for the files). WORK keeps text, tokens and encoders.
One JSON line for each pre-training, and for each task that one was fine-tuned on with all seeds; what the file holds
already is not run again. One encoder after the other is finished, so that a fresh WORK costs at most one pre-training.
A pre-training that does not end in time is saved, and the same command goes on with it. Once WORK/corpus is there,
several processes may share WORK and RUNS.jsonl, each with `--models` of its own. `--table` lays out what there is.
`--steps 50 --rows 64` tries everything out.
"""

import argparse
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from bertvision.data.squad import read_squad_file
from bertvision.experiment import build_experiment
from bertvision.files import read_json, write_text
from bertvision.pretraining.config import PretrainConfig, build_pretraining
from bertvision.pretraining.pretrain import pretrain
from bertvision.progress import Silent
from bertvision.records import MAIN_SCORES
from bertvision.run_folder import MADE_BY
from bertvision.settings import Settings, find_config, merge, read_yaml
from bertvision.steps.run import run

REFERENCE, AGAIN = "mlm_nsp", "mlm_nsp, seed 2"
OURS = "ours"  # the largest, by configs/pretrain/books.yaml
SHARES = ("mask", "same", "random")
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
    "mlm, 30%": {"objective": "mlm", "masking": {"share": 0.3}},
    "mlm, whole words": {"objective": "mlm", "masking": {"whole_words": True}},
    OURS: {},
}
CURVE = ("mlm", "ltr")  # encoders of figure 5, fine-tuned at these shares of their steps
CURVE_SHARES = (0.1, 0.2, 0.4, 0.7)
CURVE_TASK = "mnli_10k"
BILSTM, FEATURES = "ltr + bilstm", "ner features"
SEEDS = (1, 2, 3)
CORPUS = "corpus"  # vocabulary and tokens, below WORK
# Of tasks that are not judged by their main score: each encoder at its own best threshold; MRPC as the paper's tables.
SCORES = {"squad2": "best_f1", "mrpc": "accuracy"}
FINETUNE: Settings = {
    "windows": {"max_length": 128},
    "finetune": {
        "fractions": [3],
        "batch": {"windows": 32},
        "lr": 3e-4,
        "least_rows": 0,
        "min_steps": 0,
        "start": "zero",
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
        "heads": {
            "train": [{"name": "bilstm", "head": "bilstm_concat_last_four", "readout_width": 128}],
            "epochs": 6,
            "batch": {"windows": 16},
        },
    },
}


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
    parser.add_argument("--steps", type=int, default=10_000)
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
                "share_of_peak": record.share_of_peak,
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
            "stages": [{"length": 128, "steps": given.steps, "tokens": 16_384}],
            "lr": 1e-3,
            "optim": {"warmup": 0.06},
            "evaluate_every": max(1, given.steps // 10),
            "checkpoints": self._checkpoints() if model in CURVE else [],
        }
        own = {**reference, **read_yaml(find_config(Path("pretrain/books")))} if model == OURS else reference
        own = {**own, "data": reference["data"], "vocabulary": reference["vocabulary"]}
        return build_pretraining(merge(merge(own, MODELS[model]), json.loads(given.settings)), model)

    def _finetune(self, model: str, task: str, encoder: Path) -> None:
        before = [each["seconds"] for each in self._runs if each["task"] == task]
        if time.monotonic() + 1.3 * max(before, default=60.0) > self._end:
            raise OutOfTimeError(f"{model} on {task}")
        started, seeds = time.monotonic(), [int(seed) for seed in self._given.seeds.split(",")]
        scores: dict[int, dict[str, float]] = {}
        for some in [[seed] for seed in seeds] if "folds" in TASKS[task]["data"] else [seeds]:
            place = self._given.work / f"finetuned-{os.getpid()}"
            shutil.rmtree(place, ignore_errors=True)
            settings = experiment_for(model, task, encoder, self._given.data, some, self._given.rows)
            records = run(build_experiment(settings, origin=f"{model}, {task}"), place)
            scores |= {each.seed: each.scores for each in records if each.kind != "baseline"}
        shutil.rmtree(place, ignore_errors=True)
        name = SCORES.get(task, MAIN_SCORES[TASKS[task]["task"]])
        found = [round(own[name], 3) for own in scores.values() if name in own]
        line = {"model": model, "task": task, "score": name, "scores": found}
        self._add({**line, "seconds": round(time.monotonic() - started, 1)}, records[0].provenance.commit)

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
    made_by = work / CORPUS / MADE_BY
    if made_by.exists():
        made_of = read_json(made_by)["data"]
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
        OURS: "12 x 384 in more steps, the last tenth at 512",
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
}
NOTE = (
    "Mean and standard deviation over seeds of fine-tuning (of tags: folds); one pre-training each. Held-out losses "
    "compare where rows are masked alike, as in table 6: other shares, whole words, and left to right ask for other "
    "words. QNLI is missing: only its dev file is at hand. SQuAD is 2.0, by its best F1, where the paper has 1.1."
)


def as_tables(runs: Sequence[Mapping[str, Any]]) -> str:
    """Lay out every table of the paper with its published numbers, and figure 5 as a table of steps."""
    by_key = {(each["model"], each["task"]): each for each in runs}
    tables = [_table(title, published, by_key) for title, published in PUBLISHED.items()]
    return "\n\n".join([*tables, _curve(runs), NOTE])


def _table(title: str, published: Mapping[str, str], by_key: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
    tasks = list(TASKS)
    head = ["encoder", "held-out loss", "perplexity", *tasks, "published"]
    lines = [f"### {title}", "", f"| {' | '.join(head)} |", "| --- |" + " --- |" * (len(head) - 1)]
    for model, told in published.items():
        own = by_key.get(("ltr" if model == BILSTM else model, "pretrain"))
        loss = None if own is None else own["loss"]
        cells = ["", ""] if loss is None else [f"{loss['words']:.3f}", f"{loss['perplexity']:.1f}"]
        cells += [_mean(by_key[model, task]["scores"]) if (model, task) in by_key else "" for task in tasks]
        lines.append(f"| {' | '.join([model, *cells, told])} |")
    return "\n".join(lines)


def _mean(scores: Sequence[float]) -> str:
    if not scores:
        return ""
    return f"{fmean(scores):.1f}" + (f" ± {stdev(scores):.1f}" if len(scores) > 1 else "")


def _curve(runs: Sequence[Mapping[str, Any]]) -> str:
    lines = [f"### Figure 5: {CURVE_TASK} after steps", "", "| encoder | steps | score |", "| --- | --- | --- |"]
    for model in CURVE:
        whole = next((each["steps"] for each in runs if (each["model"], each["task"]) == (model, "pretrain")), None)
        own = {
            int(str(each["model"]).partition(" @")[2] or whole or 0): each["scores"]
            for each in runs
            if each["task"] == CURVE_TASK and str(each["model"]).partition(" @")[0] == model
        }
        lines += [f"| {model} | {step:,} | {_mean(scores)} |" for step, scores in sorted(own.items())]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
