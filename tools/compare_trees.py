"""Compares what the functions of two source trees return for the same random data, in seconds.

    python tools/compare_trees.py OLD_TREE [NEW_TREE] [--seeds 3] [--only spans]

Data of every kind, drawn from fixed seeds, goes through the public functions of windows, predictions, scoring and kinds
of both trees. Prints the largest difference of each field that is not equal to the bit and not expected by
`golden.yaml`, and each function that a tree does not have; ends with 1 if there is anything to print. Functions have
the names of commit 4be0c02 here. Where NEW calls one otherwise, NEW_NAMES says how: whoever moves or renames it edits
one line.
"""

import argparse
import dataclasses
import importlib
import json
import os
import string
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import golden_experiments as experiments
import numpy as np
from golden import ABSENT, WORDS, reason_for

TREE = Path(__file__).parent.parent
# Module or dotted name in OLD -> in NEW; what is not here is called the same.
NEW_NAMES: dict[str, str] = {
    "analysis.groups": "scoring.label_tables",
    "evaluate.analyze": "evaluate.score",
    "evaluate.calibration": "scoring.calibration",
    "evaluate.confidence": "scoring.confidence",
    "metrics.resampling": "scoring.bootstrap",
    "metrics.scores": "scoring.metrics",
    "metrics.squad": "scoring.squad",
    "metrics.summed": "scoring.metrics",
    "windows.padding": "windows.plan",
    "windows.rows": "windows.cut",
    "windows.step_plan": "windows.plan",
}
TASKS = {  # kind -> a task of it, what writes its files, their ending, and settings of its data
    "span": ("squad2", experiments.write_questions, "json", {}),
    "answerable": ("answerability", experiments.write_questions, "json", {}),
    "class": ("classification", experiments.write_classes, "csv", {}),
    "labels": ("multilabel", experiments.write_label_sets, "csv", {"label_separator": ";"}),
    "number": ("regression", experiments.write_numbers, "csv", {}),
    "choice": ("swag", experiments.write_choices, "csv", {}),
    "tags": ("ner", experiments.write_sentences, "conll", {}),
}
Draw = np.random.Generator
Get = Callable[[str], Any]  # a function or class by its name in OLD, without `bertvision.`


def score_rows(get: Get, draw: Draw) -> Iterator[tuple[str, Any]]:
    """Score random classes, label sets, numbers and tags, each alone and in resamples."""
    classes = draw.integers(0, 3, (2, 60))
    sets = draw.integers(0, 2, (2, 60, 4))
    numbers = draw.normal(size=(2, 60)).round(1)
    given = dict.fromkeys(("pearson", "spearman", "rmse", "mae"), numbers)
    given |= dict.fromkeys(("micro_f1", "macro_f1", "exact_sets"), sets)
    given |= dict.fromkeys(("f1", "matthews", "accuracy"), classes > 1)
    for name, (gold, found) in given.items():
        yield name, get(f"metrics.scores.{name}")(gold, found)
    tags = [[tuple(draw.choice(["O", "B-A", "I-A", "B-B"], 8).tolist()) for _ in range(20)] for _ in range(2)]
    yield "score_tags", get("metrics.scores.score_tags")(*tags)
    resample, units = get("metrics.resampling.Draw")(np.arange(60), 50, 3), get("metrics.resampling.resample_means")
    yield "resample_means", units(numbers[0] - numbers[1], resample)
    yield "interval_of", get("metrics.resampling.interval_of")(numbers[0])
    yield "resample_spearman", get("metrics.summed.resample_spearman")(numbers[0], [numbers[1]], 50, 3)
    yield (
        "mcnemar",
        [get("metrics.resampling.mcnemar_p_value")(int(a), int(b)) for a, b in draw.integers(0, 30, (5, 2))],
    )


def score_answers(get: Get, draw: Draw) -> Iterator[tuple[str, Any]]:
    """Score random answers as the official script does, tune thresholds, and judge probabilities."""
    words = list(string.ascii_lowercase[:6]) + ["the", "an", "A.", "b-c"]
    question, answer = get("data.example.Question"), get("data.example.GoldAnswer")
    candidate = get("predictions.prediction.Candidate")
    contexts = [" ".join(draw.choice(words, 12)) for _ in range(40)]
    texts = [" ".join(context.split()[n % 9 : n % 9 + 3]) for n, context in enumerate(contexts)]
    golds = [() if n % 4 == 0 else (answer(text, contexts[n].index(text)),) for n, text in enumerate(texts)]
    questions = [question(str(n), "who?", contexts[n], golds[n], f"title {n // 5}") for n in range(40)]
    said = {str(n): text if draw.random() < 0.7 else text[2:] or "a" for n, text in enumerate(texts)}
    odds = {str(n): float(value) + (n % 4 == 0) for n, value in enumerate(draw.normal(size=40).round(2))}
    abstaining = {key: "" if odds[key] > 0 else text for key, text in said.items()}
    yield "score_squad2", get("metrics.squad.score_squad2")(questions, abstaining, odds, 0.0)
    answerable = [each for each in questions if each.answers]
    yield "score_squad1", get("metrics.squad.score_squad1")(answerable, {each.id: said[each.id] for each in answerable})
    yield "normalize_answer", [get("metrics.squad.normalize_answer")(text) for text in texts]
    sweep = get("metrics.resampling.build_sweep")(questions, said, odds)
    resample = get("metrics.resampling.Draw")(np.arange(40), 30, 3)
    yield "resample_best_f1", get("metrics.resampling.resample_best_f1")([sweep], resample)
    shares = draw.dirichlet(np.ones(3), 40)
    listed = {
        key: [candidate(text, 0.0, 0.0, float(shares[n, 0])), candidate("", 0.0, 0.0, float(shares[n, 1]))]
        for n, (key, text) in enumerate(said.items())
    }
    answers = get("evaluate.confidence.build_answers")(questions, said, odds, listed)
    decision = get("evaluate.calibration.fit_decision")(answers)
    yield "fit_decision", decision
    yield "threshold_of_accuracy", get("evaluate.calibration.threshold_of_accuracy")(answers, 0.2)
    yield "judge", get("evaluate.calibration.judge")([answers], [decision])
    plain = get("evaluate.calibration.Decision")(0.0)
    yield "calibration_scores", get("evaluate.calibration.calibration_scores")(answers, plain, decision)
    for grouping in get("analysis.groups.group_questions")(questions):
        yield f"group_questions.{grouping[0]}", grouping


def plan_steps(get: Get, draw: Draw) -> Iterator[tuple[str, Any]]:
    """Plan epochs over windows of random lengths."""
    lengths = draw.integers(4, 64, 90)
    for words in ({"tokens": 256}, {"windows": 7}):
        batch = get("windows.step_plan.BatchConfig")(**words)
        for group in (1, 3):
            name = f"{next(iter(words))}.{group}"
            yield f"plan_epoch.{name}", get("windows.step_plan.plan_epoch")(lengths, batch, 5, 2, group)
            plan = get("windows.step_plan.StepPlan")(lengths, batch, 5, group=group)
            yield f"StepPlan.{name}", [(each.steps, each.width) for each in plan.epoch(1, 2)]
    yield "padding_share", get("windows.step_plan.padding_share")(lengths, [np.arange(45), np.arange(45, 90)])
    yield "longest_first", [get("windows.rows.longest_first")(*map(int, each)) for each in draw.integers(1, 40, (8, 3))]
    yield "spread", get("windows.padding.spread")(90, 11)


def judge_kind(kind: str) -> Callable[[Get, Draw], Iterator[tuple[str, Any]]]:
    """Return a probe that cuts a kind's files, decodes random logits and judges what they say."""

    def probe(get: Get, draw: Draw) -> Iterator[tuple[str, Any]]:
        task, write, ending, data = TASKS[kind]
        tokenizer = build_tokenizer()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write(folder)
            train, dev = (str(folder / f"{split}.{ending}") for split in ("train", "dev"))
            read = get("tasks.read_task")(task, get("data.example.DataConfig")(train=train, dev=dev, **data))
            windows = get("windows.window.WindowConfig")(max_length=40, stride=12)
            config = get("predictions.prediction.AnswerConfig")(n_best=5)
            asked = get("tasks.open_answering")(read, read.dev, tokenizer, windows, config)
            cut = asked.windows
            yield "windows", [[each.ids, each.context_at, each.start, each.end] for each in cut]
            rows = sum(map(len, cut)) if read.kind.per == "token" else len(cut)
            members = [draw.normal(size=(rows, read.kind.columns(read.labels))).astype("f4") for _ in range(2)]
            for how in read.kind.hows:
                weights = (0.7, 0.3) if how == "weighted" else None
                yield f"combine.{how}", asked.combine(members, how, weights)
            for model, logits in zip("ab", members, strict=True):
                predictions = asked.answer(logits)
                yield f"predictions.{model}", predictions
                yield f"scores.{model}", asked.score(predictions, logits)
                asked.write(folder / model, predictions, logits)
                for path in sorted((folder / model).rglob("*.json")):
                    yield f"written.{model}.{path.name}", json.loads(path.read_text())
            yield "guess_scores", read.kind.guess_scores(asked.golds, read.train.examples)
            compare = get("evaluate.compare.CompareConfig")(resamples=200, task=task, settings={"data": data})
            compared = get("evaluate.compare.compare_files")(folder / "a", folder / "b", dev, compare).as_dict()
            yield "compare", {key: value for key, value in compared.items() if key not in ("a", "b", "disagreements")}
            found = get("evaluate.analyze.analyze_folder")(
                folder / "a", dev, folder / "b", 4, task, {"data": data}
            ).as_dict()
            yield "analyze", {key: value for key, value in found.items() if key != "models"}

    return probe


PROBES: dict[str, Callable[[Get, Draw], Iterator[tuple[str, Any]]]] = {
    "rows": score_rows,
    "answers": score_answers,
    "steps": plan_steps,
    **{kind: judge_kind(kind) for kind in TASKS},
}


def build_tokenizer() -> Any:  # noqa: ANN401 (transformers' type)
    """Return a tokenizer that spells words letter by letter; every word of `experiments` is one piece."""
    from transformers import BertTokenizerFast

    letters = experiments.LETTERS
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{each}" for each in letters)]
    return BertTokenizerFast(vocab={piece: n for n, piece in enumerate([*pieces, *experiments.WORDS])})


def flatten(value: Any, field: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 (any value)
    """Give every plain value below a value; fields of tuples and data classes by their place, as names may change."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, each.name) for each in dataclasses.fields(value)]
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from flatten(each, f"{field}.{key}")
    elif isinstance(value, list | tuple | range):
        for place, each in enumerate(value):
            yield from flatten(each, f"{field}.{place}")
    elif hasattr(value, "model_dump"):
        yield from flatten(value.model_dump(mode="json"), field)
    else:
        yield field, value if isinstance(value, str | int | float | bool | None) else str(value)


def new_name(names: Mapping[str, str], name: str) -> str:
    """Return what NEW calls a function of OLD; a module's entry serves all that is in it."""
    module, _, attribute = name.rpartition(".")
    return names.get(name) or f"{names.get(module, module)}.{attribute}"


def probe_tree(names: Mapping[str, str], seeds: int, chosen: list[str]) -> dict[str, Any]:
    """Return all fields of the bertvision that this process imports; a function it lacks has its name as its field."""

    def get(name: str) -> Any:  # noqa: ANN401 (any object)
        module, _, attribute = new_name(names, name).rpartition(".")
        return getattr(importlib.import_module(f"bertvision.{module}"), attribute)

    fields: dict[str, Any] = {}
    for name in chosen:
        for seed in range(seeds):
            try:
                for field, value in PROBES[name](get, np.random.default_rng(seed)):
                    fields.update(flatten(value, f"{name}.{seed}.{field}"))
            except Exception as error:  # a tree that refuses or lacks something has that as its field
                fields[f"{name}.{seed}.(stopped)"] = f"{type(error).__name__}: {error}"
    return fields


def group_of(field: str) -> str:
    """Return what a field is reported under: its probe and function, without seed and places."""
    probe, _, *rest = field.split(".")
    return ".".join([probe, *(each for each in rest if not each.isdigit())])


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """Return what is to be said of each group of fields that differs: the largest difference, or an example."""
    apart: dict[str, float] = {}
    said: dict[str, str] = {}
    for field in dict.fromkeys([*old, *new]):
        one, other, group = old.get(field, ABSENT), new.get(field, ABSENT), group_of(field)
        if one == other or (one != one and other != other):
            continue
        if reason_for(field, str(one), str(other), WORDS["expected_of_functions"]):
            continue
        if isinstance(one, float | int) and isinstance(other, float | int):
            apart[group] = max(apart.get(group, 0.0), abs(one - other))
        else:
            said.setdefault(group, f"{field}: {one!r:.100} -> {other!r:.100}")
    return {group: f"largest difference {value:.3g}" for group, value in apart.items()} | said


def run_probes(tree: Path, *, is_new: bool, seeds: int, chosen: list[str]) -> subprocess.Popen[str]:
    """Start a process that prints the fields of a tree as JSON."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    words = ["--probe", "new" if is_new else "old", str(seeds), *chosen]
    return subprocess.Popen([sys.executable, __file__, *words], env=environment, stdout=subprocess.PIPE, text=True)


def main(arguments: list[str] | None = None) -> int:
    """Probe both trees and print what differs; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, metavar="OLD_TREE", help="a checkout with the names of commit 4be0c02")
    parser.add_argument("new", type=Path, metavar="NEW_TREE", nargs="?", default=TREE, help="[default: this one]")
    parser.add_argument("--seeds", type=int, default=3, help="how often each is drawn [default: 3]")
    parser.add_argument("--only", action="append", choices=PROBES, metavar="NAME", help=f"of {', '.join(PROBES)}")
    asked = parser.parse_args(arguments)
    chosen = asked.only or list(PROBES)
    started = [
        run_probes(tree.resolve(), is_new=is_new, seeds=asked.seeds, chosen=chosen)
        for tree, is_new in ((asked.old, False), (asked.new, True))
    ]
    printed = [process.communicate()[0] for process in started]
    if failed := [process.args for process in started if process.returncode]:
        raise SystemExit(f"stopped: {failed[0]}")
    old, new = map(json.loads, printed)
    stopped = {field: value for field, value in old.items() if field.endswith("(stopped)")}
    found = compare(old, new) | stopped
    for group, line in found.items():
        print(f"{group}: {line}")
    print(f"{len(chosen)} probes, {len(old)} values of OLD: {len(found)} fields differ")
    return int(bool(found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--probe"]:
        json.dump(probe_tree(NEW_NAMES if sys.argv[2] == "new" else {}, int(sys.argv[3]), sys.argv[4:]), sys.stdout)
    else:
        sys.exit(main())
