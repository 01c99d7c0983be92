"""Studies near misses: which rules and which share of them help a reader that is scored on the official dev set.

    python -m tools.near_miss_study ENCODER train-open.json.gz dev-v2.0.json.gz --out RUNS.jsonl [--minutes 8]

One JSON line for each finished run; what the file holds already is not run again. Every run is a fine-tuning with the
side `fastest` of benchmarks/seconds_to_score.py. Half of the paragraphs of one source, whose unanswerable questions
people wrote, are held out for the threshold (tools/default_data.py). `none longer` takes as many steps as `all 0.5`
does. Beside the lines, `RUNS.md` lays out what there is; `--table` does no more than that.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from bertvision.analysis.groups import group_words
from bertvision.data.example import DataConfig, NearMissConfig, NearMissRule
from bertvision.data.near_miss import NearMisses, near_misses_of
from bertvision.data.squad import read_squad_file
from bertvision.encoder.load import load_encoder
from bertvision.files import write_text
from bertvision.metrics.squad import score_squad2
from bertvision.predictions.files import read_answers
from bertvision.progress import SILENT
from bertvision.report.renderers import to_markdown
from bertvision.steps.context import RunContext, prepare
from bertvision.steps.finetune import finetune
from bertvision.steps.predict import predict
from bertvision.steps.results import ENCODER
from bertvision.tables import Table
from tools.default_data import main as part

sys.path.append(str(Path(__file__).parents[1]))  # benchmarks and studies are in no wheel
from benchmarks.measuring import clear, cudnn_attention
from benchmarks.seconds_to_score import FASTEST, SecondsBench, experiment_of
from studies.study_tables import interval_text
from studies.verdicts import estimate

SEEDS = (1, 2, 3)
NONE, LONGER, HALF = "none", "none longer", "all 0.5"
FIVE: tuple[NearMissRule, ...] = ("name", "number", "antonym", "negation", "condition")  # `all`; what was studied first
# The most informative first; seeds come after all sides.
SIDES: dict[str, NearMissConfig | None] = {
    NONE: None,
    HALF: NearMissConfig(share=0.5, rules=FIVE),
    "all 1": NearMissConfig(share=1.0, rules=FIVE),
    **{f"{rule} 1": NearMissConfig(share=1.0, rules=(rule,)) for rule in get_args(NearMissRule)},
    "all 0.25": NearMissConfig(share=0.25, rules=FIVE),
    LONGER: None,
    "all and borrowed 1": NearMissConfig(share=1.0),
}
SCORES = {
    "best F1": "best_f1",
    "F1 at 0": "f1",
    "F1 tuned": "tuned_f1",
    "answerable F1 at 0": "HasAns_f1",
    "abstains rightly at 0": "NoAns_f1",
}


def main() -> None:
    """Run what is not in the file yet until the time is up, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", nargs="?")
    parser.add_argument("train", nargs="?", type=Path)
    parser.add_argument("dev", nargs="?", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--table", action="store_true", help="lay out the file and end")
    given = parser.parse_args()
    if not given.table:
        with tempfile.TemporaryDirectory(prefix="near-miss-study-") as folder:
            run_all(given, Path(folder))
    tables = tables_of(read_runs(given.out))
    write_text(given.out.with_suffix(".md"), tables)
    print(tables)


def run_all(given: argparse.Namespace, folder: Path) -> None:
    """Run side after side, seed after seed, and stop before one would not end in time."""
    end, longest = time.monotonic() + 60 * given.minutes, 0.0
    done = {(run["side"], run["seed"]) for run in read_runs(given.out)}
    wanted = [(side, int(seed)) for seed in given.seeds.split(",") for side in given.sides.split(",")]
    wanted = [each for each in wanted if each not in done]
    if not wanted:
        return
    part(given.train, folder)
    found = start_making(folder / "train.json", {side for side, _ in wanted})
    base = open_base(given, folder)
    print(f"ready: {len(base.train):,} windows, {end - time.monotonic():.0f} s left", flush=True)
    for side, seed in wanted:
        if time.monotonic() + 1.3 * longest > end:  # near misses make a run longer than the one before
            print(f"stopped before {side}, seed {seed}: the same command goes on", flush=True)
            return
        started = time.monotonic()
        run = measure(base, found, side, seed, given.epochs)
        longest = max(longest, time.monotonic() - started)
        with given.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run) + "\n")
        print(json.dumps(run), flush=True)


def open_base(given: argparse.Namespace, folder: Path) -> RunContext:
    """Read and cut the data once, without near misses."""
    data = DataConfig(train=str(folder / "train.json"), dev=str(given.dev), held_out=str(folder / "held_out.json"))
    config = SecondsBench(encoder=given.encoder, data=data)
    return prepare(experiment_of(config, FASTEST), folder / "run", SILENT)


def start_making(train: Path, sides: set[str]) -> dict[str, "Future[NearMisses]"]:
    """Make all sides' near misses in processes of their own, which begin before this one opens the GPU."""
    needed = sides - {LONGER} | ({HALF} if LONGER in sides else set())
    configs = {side: SIDES[side] for side in SIDES if side in needed and SIDES[side] is not None}
    pool = ProcessPoolExecutor(max_workers=max(1, min(len(configs), (os.cpu_count() or 2) - 1)))
    return {side: pool.submit(make, train, config) for side, config in configs.items() if config is not None}


def make(train: Path, config: NearMissConfig) -> NearMisses:
    """Make the near misses of one side."""
    return near_misses_of(read_squad_file(train).examples, config, str(train))


def measure(
    base: RunContext, found: dict[str, "Future[NearMisses]"], side: str, seed: int, epochs: float
) -> dict[str, Any]:
    """Fine-tune with a side's near misses, and score dev."""
    if side == LONGER:  # as many steps as with half of the near misses
        epochs *= len(with_side(base, found[HALF].result()).train) / len(base.train)
    near_misses = found[side].result() if side in found and side != LONGER else None
    context = with_side(base, near_misses)
    config = SecondsBench(encoder=base.experiment.encoder, data=base.experiment.data, seed=seed)
    config = config.model_copy(update={"fastest": config.fastest.model_copy(update={"epochs": epochs})})
    with tempfile.TemporaryDirectory(prefix="near-miss-run-") as folder, cudnn_attention(False):
        here = replace(context.of(experiment_of(config, FASTEST)), out=Path(folder))
        finetune(here)
        (record,) = (each for each in predict(here.at(seed, epochs)) if each.row == ENCODER)
        kinds = dict(by_kind(here.at(seed, epochs)))
    clear(here.compute.device)
    return {
        "side": side,
        "seed": seed,
        "epochs": round(epochs, 3),
        "near_misses": near_misses.counts if near_misses is not None else {},
        "windows": len(context.train),
        "seconds": round(record.seconds.finetune, 1),
        "scores": {name: round(value, 3) for name, value in record.scores.items()},
        "f1_at_0_by_word": kinds,
        "commit": record.provenance.commit,
    }


def with_side(base: RunContext, found: NearMisses | None) -> RunContext:
    """Add near misses to the training windows; only they are cut anew."""
    if found is None:
        return base
    questions = [each.question for each in found.made]
    tokenizer = load_encoder(base.experiment.encoder).tokenizer
    cut = base.task.kind.cut(questions, base.task.labels, tokenizer, base.experiment.windows)
    more = [replace(window, example=window.example + len(base.task.train.examples)) for window in cut]
    examples = base.task.train.examples + tuple(questions)
    task = base.task._replace(train=replace(base.task.train, examples=examples))
    return replace(base, train=[*base.train, *more], task=task)


def by_kind(context: RunContext) -> Iterator[tuple[str, float]]:
    """Score dev by the question word, at threshold 0."""
    answers = read_answers(context.folder.predictions(ENCODER))
    for name, questions in group_words(context.dev.split.examples).groups.items():
        if not questions:
            continue
        yield name, round(score_squad2(questions, {each.id: answers[each.id] for each in questions})["f1"], 2)


def read_runs(path: Path) -> list[dict[str, Any]]:
    """Read the finished runs; a line that a kill cut off is not one."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def tables_of(runs: list[dict[str, Any]]) -> str:
    """Lay out each side's scores and its gain over none, then what it does for each question word."""
    by_side: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for run in runs:
        by_side[run["side"]][run["seed"]] = run
    sides = [each for each in SIDES if each in by_side]
    rows = tuple((side, f"{made_of(by_side[side]):,}", *score_cells(by_side, side)) for side in sides)
    scores = Table("", ("near misses", "made", *SCORES, "best F1, gain"), rows)
    words = list(next(iter(by_side[NONE].values()))["f1_at_0_by_word"])
    by_word = tuple((side, *(f"{word_gain(by_side, side, word):+.1f}" for word in words)) for side in sides[1:])
    return to_markdown(scores) + "\n" + to_markdown(Table("", ("gain in F1 at 0", *words), by_word))


def made_of(own: dict[int, dict[str, Any]]) -> int:
    """Count a side's near misses."""
    return sum(next(iter(own.values()))["near_misses"].values())


def score_cells(by_side: dict[str, dict[int, dict[str, Any]]], side: str) -> list[str]:
    """Return a side's mean scores, and its gain over none in best F1, paired by seed, with its 95% interval."""
    own, none = by_side[side], by_side[NONE]
    means = [f"{fmean(run['scores'][key] for run in own.values()):.1f}" for key in SCORES.values()]
    gains = [run["scores"]["best_f1"] - none[seed]["scores"]["best_f1"] for seed, run in own.items() if seed in none]
    return [*means, "" if side == NONE else interval_text(estimate(gains), "+")]


def word_gain(by_side: dict[str, dict[int, dict[str, Any]]], side: str, word: str) -> float:
    """Return what a side gains over none on questions with a word, at threshold 0."""
    own, none = by_side[side], by_side[NONE]
    return fmean(own[seed]["f1_at_0_by_word"][word] - none[seed]["f1_at_0_by_word"][word] for seed in own)


if __name__ == "__main__":
    main()
