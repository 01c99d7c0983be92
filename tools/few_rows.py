"""What a default run makes of few rows, beside regressions on one vector: results/few_rows/few_rows.json and .md.

    python tools/few_rows.py GLUE_FOLDER [--sizes 64,250,1000] [--draws 3]

GLUE's training rows are drawn as a table of one's own. Half of the scored dev rows choose the run's best model, and the
other half score it; regressions on the mean and on the first token's state are scored on that half too.
"""

import argparse
import csv
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import bertvision
from bertvision.training_result import TrainingResult

OUT = Path("results/few_rows")
TASKS = {
    "SST-2": ("classification", ("sentence",), "label", "accuracy"),
    "MRPC": ("classification", ("#1 String", "#2 String"), "Quality", "accuracy"),
    "RTE": ("classification", ("sentence1", "sentence2"), "label", "accuracy"),
    "STS-B": ("regression", ("sentence1", "sentence2"), "score", "pearson"),
}
SCORED = 400  # rows of dev, at most: half to choose by, half to score
SIDES = ("default run", "last mean", "last first token", "majority")


def main() -> None:
    """Run what is not in the record yet, and draw the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("glue", type=Path)
    parser.add_argument("--sizes", default="64,250,1000")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--tasks", default=",".join(TASKS))
    given = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / "few_rows.json"
    runs: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    for draw in range(given.draws):
        for size in map(int, given.sizes.split(",")):
            for task in given.tasks.split(","):
                if not any((run["task"], run["rows"], run["draw"]) == (task, size, draw) for run in runs):
                    runs.append(measure(given.glue, task, size, draw))
                    path.write_text("[\n" + ",\n".join(json.dumps(run) for run in runs) + "\n]\n")
                    (OUT / "few_rows.md").write_text(as_table(runs))
                    print(runs[-1], flush=True)


def measure(glue: Path, task: str, size: int, draw: int) -> dict[str, Any]:
    """Train on one draw by default, and with nothing but a regression on one vector."""
    kind, texts, label, metric = TASKS[task]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        random = np.random.default_rng(draw)
        train, dev = (read(glue / task / f"{split}.tsv", texts, label) for split in ("train", "dev"))
        chosen = [dev[row] for row in np.random.default_rng(0).permutation(len(dev))[:SCORED]]
        write(place / "train.csv", [train[row] for row in random.permutation(len(train))[:size]])
        write(place / "dev.csv", chosen[::2])
        write(place / "test.csv", chosen[1::2])
        columns = ("first", "second")[: len(texts)]
        data = {"also": {"test": str(place / "test.csv")}}
        asked = {"task": kind, "dev": place / "dev.csv", "text": columns if len(texts) == 2 else "first"}
        started = time.perf_counter()
        result = bertvision.train(place / "train.csv", **asked, settings={"data": data})
        seconds = time.perf_counter() - started
        scores = {"default run": score(result, metric, result.best), "majority": score(result, metric, "majority")}
        for name, pooling in (("last mean", "mean"), ("last first token", "first")):
            settings = {"data": data, "states": {"pooling": pooling}, "finetune": {"fractions": []}}
            alone = bertvision.train(place / "train.csv", **asked, heads=["last_regression"], settings=settings)
            scores[name] = score(alone, metric, "last_regression")
        heads = {name: score(result, metric, name) for name in result.scores}
    best = {"best": result.best, "pooling": result.records[0].config["states"]["pooling"], "models": heads}
    return {"task": task, "rows": size, "draw": draw, "metric": metric, "seconds": round(seconds, 1), **scores, **best}


def read(path: Path, texts: tuple[str, ...], label: str) -> list[tuple[str, ...]]:
    """Read GLUE's rows as texts and a label."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [tuple(row[name] for name in (*texts, label)) for row in rows if row[label]]


def write(path: Path, rows: list[tuple[str, ...]]) -> None:
    """Write rows as somebody's own CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow([*("first", "second")[: len(rows[0]) - 1], "label"])
        table.writerows(rows)


def score(result: TrainingResult, metric: str, name: str) -> float | None:
    """Return a model's score on the half that chose nothing; a correlation with a constant has none."""
    value = result.scores[name].get(f"test_{metric}")
    return None if value is None else round(value, 1)


def as_table(runs: list[dict[str, Any]]) -> str:
    """Lay out means and, of the default run, the spread over draws."""
    lines = ["| task | rows | draws | default run | mean, last layer | first token, last layer | majority | seconds |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for task, rows in sorted({(run["task"], run["rows"]) for run in runs}):
        own = [run for run in runs if (run["task"], run["rows"]) == (task, rows)]
        values = {side: [run[side] for run in own if run[side] is not None] for side in SIDES}
        means = [f"{np.mean(each):.1f}" if each else "" for each in values.values()]
        means[0] += f" ± {np.std(values['default run']):.1f}"
        seconds = f"{np.median([run['seconds'] for run in own]):.0f}"
        lines.append(f"| {task} | {rows:,} | {len(own)} | {' | '.join(means)} | {seconds} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
