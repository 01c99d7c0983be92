"""Asks on a CPU whether one more rule of near misses teaches anything to a reader that knows the first five.

    python tools/default_data.py train-open.json.gz FOLDER
    python -m tools.near_miss_more FOLDER dev-v2.0.json.gz --out results/near_miss/near_miss_more.jsonl

The default model, which learned from the first five rules, is tuned on with 5,000 questions: 3,500 of the training
file, and 1,500 near misses. Of these, each side but `five` takes half from its own rule. One JSON line for each
finished run; what the file holds already is not run again. Held-out questions, which people wrote, choose; dev is
reported. Beside the lines, OUT.md lays out what there is. On a CPU without AVX512-BF16 or AMX, give
`--precision float32`.
"""

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from bertvision.cli.bars import TerminalProgress
from bertvision.data.example import NearMissConfig, NearMissRule, Question
from bertvision.data.near_miss import make_near_misses
from bertvision.data.squad import read_squad_file
from bertvision.experiment import build_experiment
from bertvision.files import append_text, write_json, write_text
from bertvision.report.renderers import to_markdown
from bertvision.steps.run import run
from bertvision.tables import Table
from tools.near_miss_study import FIVE, read_runs

sys.path.append(str(Path(__file__).parents[1]))  # benchmarks and studies are in no wheel
from studies.study_tables import interval_text
from studies.verdicts import estimate

OWN, NEAR = 3_500, 1_500
SIDES: dict[str, NearMissRule | None] = {"five": None, "borrowed": "borrowed"}
SCORES = {
    "held-out F1": "held_out_f1",
    "F1 tuned": "tuned_f1",
    "best F1": "best_f1",
    "F1 at 0": "f1",
    "answerable F1 at 0": "HasAns_f1",
    "abstains rightly at 0": "NoAns_f1",
}
JUDGED = ("held-out F1", "F1 tuned", "best F1")


def main() -> None:
    """Run what is not in the file yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of train.json and held_out.json")
    parser.add_argument("dev", help="SQuAD 2.0's dev file; [:5000] takes its first questions")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--precision", default="bf16")
    given = parser.parse_args()
    done = {(each["side"], each["seed"]) for each in read_runs(given.out)}
    todo = [(side, seed) for seed in given.seeds for side in SIDES if (side, seed) not in done]
    if todo:
        with tempfile.TemporaryDirectory(prefix="near-miss-more-") as folder:
            write_sides(given.folder / "train.json", Path(folder))
            for side, seed in todo:
                found = measure(given, Path(folder), side, seed)
                append_text(given.out, json.dumps(found) + "\n")
    table = to_markdown(table_of(read_runs(given.out)))
    write_text(given.out.with_suffix(".md"), table)
    print(table)


def write_sides(train: Path, folder: Path) -> None:
    """Write the training file of every side; all have the same questions of people, and as many near misses."""
    questions = read_squad_file(train).examples
    draw = random.Random(1)
    own = draw.sample(questions, OWN)
    five = near_misses(questions, FIVE, draw)
    for side, rule in SIDES.items():
        more = [] if rule is None else near_misses(questions, (rule,), draw)[: NEAR // 2]
        write_squad(folder / f"{side}.json", [*own, *five[: NEAR - len(more)], *more])


def near_misses(
    questions: tuple[Question, ...], rules: tuple[NearMissRule, ...], draw: random.Random
) -> list[Question]:
    """Make all near misses of some rules, in a random order."""
    found = [
        each.question for each in make_near_misses(questions, NearMissConfig(fraction=1, rules=rules), "train").made
    ]
    return draw.sample(found, len(found))


def write_squad(path: Path, questions: list[Question]) -> None:
    """Write questions as SQuAD 2.0, each with a paragraph of its own."""
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
        for each in questions
    ]
    write_json(path, {"version": "v2.0", "data": [{"title": "", "paragraphs": paragraphs}]})


def measure(given: argparse.Namespace, folder: Path, side: str, seed: int) -> dict[str, Any]:
    """Tune the default model on a side's questions, and score it."""
    settings = {
        "name": side,
        "seeds": [seed],
        "encoder": "default-model",
        "precision": given.precision,
        "data": {
            "train": str(folder / f"{side}.json"),
            "dev": given.dev,
            "held_out": str(given.folder / "held_out.json"),
        },
        "windows": {"max_length": 384, "stride": 128, "stride_as": "overlap"},
        "tune": {"train": "top:6", "train_norms": False},
        "finetune": {
            "fractions": [1],
            "batch": {"tokens": 4096},
            "lr": 1e-4,
            "dropout": 0.0,
            "optim": {"schedule": "linear", "warmup": 0.06},
        },
        "heads": {"train": []},
    }
    (record,) = run(build_experiment(settings), folder / f"{side}-{seed}", TerminalProgress())
    scores = {name: round(record.scores[name], 3) for name in SCORES.values()}
    return {"side": side, "seed": seed, "scores": scores, "provenance": record.provenance.model_dump(mode="json")}


def table_of(runs: list[dict[str, Any]]) -> Table:
    """Lay out each side's mean scores, and its gains over `five`, paired by seed."""
    by_side = {side: {run["seed"]: run["scores"] for run in runs if run["side"] == side} for side in SIDES}
    rows = tuple(
        (
            side,
            f"{len(own)}",
            *(f"{fmean(scores[key] for scores in own.values()):.1f}" for key in SCORES.values()),
            *(gain(own, by_side["five"], SCORES[name]) if side != "five" else "" for name in JUDGED),
        )
        for side, own in by_side.items()
        if own
    )
    return Table("", ("near misses", "seeds", *SCORES, *(f"{name}, gain" for name in JUDGED)), rows)


def gain(own: dict[int, dict[str, float]], other: dict[int, dict[str, float]], key: str) -> str:
    """Return what a side gains in a score, with the 95% interval over seeds."""
    return interval_text(estimate([own[seed][key] - other[seed][key] for seed in own if seed in other]), "+")


if __name__ == "__main__":
    main()
