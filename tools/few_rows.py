"""Measures what a run makes of few rows, beside a logistic regression and guessing.

    python tools/few_rows.py prepare DATA TABLES      # DATA holds glue/, squad2/ and books/; TABLES gets 9 MB
    python tools/few_rows.py measure TABLES --out OUT --encoders MiniLM=default,MPNet=FOLDER --workers 10 --minutes 9
    python tools/few_rows.py report --out OUT         # a table of what is finished

Settings are chosen on other rows: `prepare --choosing DATA TABLES`. A cell is one encoder, task, number of rows, draw
and side, and a line of OUT/few_rows.jsonl; one that is there is not measured again. First draws and small sizes come
first, so that what is finished at any moment is balanced. Sides:

- `default`: `bertvision.train` with nothing set; its best model, chosen on dev, and the scores of all its heads;
- `contrastive`: the same with `finetune.objective: contrastive`;
- `logistic`: scikit-learn on the mean over tokens of the last state (pairs: u, v, |u-v|, u*v; numbers: the cosine);
- `majority`: the class that occurs most often.
"""

import argparse
import json
import lzma
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from few_rows_data import Row, prepare, read_table, write_table

RECORDS = "few_rows.jsonl"
SIZES = ("8", "16", "64", "250", "1000", "all")
MOST_DRAWS = {"1000": 3, "all": 1}  # of sizes whose draws differ little; others: --draws
MOST_CHOSEN_ON = 1000  # rows that the logistic regression's strength is chosen on
SIDES = ("default", "contrastive", "logistic", "majority")
TASKS = {  # table -> its task and score
    "SST-2": ("classification", "accuracy"),
    "MRPC": ("classification", "accuracy"),
    "CoLA": ("cola", "matthews"),
    "RTE": ("classification", "accuracy"),
    "STS-B": ("regression", "pearson"),
    "MNLI-10k": ("classification", "accuracy"),
    "QQP-10k": ("classification", "accuracy"),
    "questions": ("classification", "accuracy"),
    "books": ("classification", "accuracy"),
}


class Cell(NamedTuple):
    """What is measured at once."""

    encoder: str
    task: str
    rows: str
    draw: int
    side: str


class Place(NamedTuple):
    """Where and how a cell is measured."""

    tables: Path
    encoder: str  # what `bertvision.train` is given
    device: str
    deadline: float  # seconds since the epoch


def main() -> None:
    """Prepare, measure or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    preparing = verbs.add_parser("prepare", help="cut the tables")
    preparing.add_argument("data", type=Path)
    preparing.add_argument("tables", type=Path)
    preparing.add_argument("--choosing", action="store_true", help="tables to choose settings on")
    measuring = verbs.add_parser("measure", help="measure what is not there yet")
    measuring.add_argument("tables", type=Path)
    measuring.add_argument("--encoders", default="MiniLM=default", help="NAME=ENCODER, with commas between them")
    measuring.add_argument("--tasks", default=",".join(TASKS))
    measuring.add_argument("--sizes", default=",".join(SIZES))
    measuring.add_argument("--sides", default=",".join(SIDES))
    measuring.add_argument("--draws", type=int, default=10)
    measuring.add_argument("--device", default="auto")
    measuring.add_argument("--workers", type=int, default=1)
    measuring.add_argument("--minutes", type=float, default=60.0, help="start no cell later")
    for verb in (measuring, verbs.add_parser("report", help="print a table of what is finished")):
        verb.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.verb == "prepare":
        prepare(given.data, given.tables, choosing=given.choosing)
        return
    if given.verb == "measure":
        measure_all(given)
    print(report(read_records(given.out)))


# Measuring


def measure_all(given: argparse.Namespace) -> None:
    """Measure what is not in the records yet, in several processes, until the time is up."""
    given.out.mkdir(parents=True, exist_ok=True)
    finished = {cell_of(record) for record in read_records(given.out)}
    cells = [cell for cell in all_cells(given) if cell not in finished]
    print(f"{len(finished)} cells are there, {len(cells)} to measure", flush=True)
    encoders = dict(each.split("=", 1) for each in given.encoders.split(","))
    deadline = time.time() + 60 * given.minutes
    places = {name: Place(given.tables, encoder, given.device, deadline) for name, encoder in encoders.items()}
    pool = ProcessPoolExecutor(given.workers, mp_context=get_context("spawn"))
    with pool, (given.out / RECORDS).open("a", encoding="utf-8") as file:
        for done in as_completed([pool.submit(measure, cell, places[cell.encoder]) for cell in cells]):
            try:
                record = done.result()
            except Exception as error:  # said, and tried again next time
                print(f"{type(error).__name__}: {error}", flush=True)
                continue
            if record is not None:
                file.write(json.dumps(record) + "\n")
                file.flush()


def all_cells(given: argparse.Namespace) -> Iterator[Cell]:
    """List all cells, the first draws and the small sizes first."""
    encoders = [each.partition("=")[0] for each in given.encoders.split(",")]
    for draw in range(given.draws):
        for rows in given.sizes.split(","):
            if draw < MOST_DRAWS.get(rows, given.draws):
                for encoder in encoders:
                    for task in given.tasks.split(","):
                        for side in given.sides.split(","):
                            if side != "majority" or TASKS[task][0] != "regression":
                                yield Cell(encoder, task, rows, draw, side)


def measure(cell: Cell, place: Place) -> dict[str, Any] | None:
    """Return a cell's record: its score on test, and the seconds that it took; None once the time is up."""
    if time.time() > place.deadline:
        return None
    drawn = draw_rows(table(place.tables, cell.task, "train"), cell)
    started = time.perf_counter()
    match cell.side:
        case "default":
            found = run_bertvision(cell, place, drawn, {})
        case "contrastive":
            found = run_bertvision(cell, place, drawn, {"finetune": {"objective": "contrastive"}})
        case "logistic":
            found = {"score": run_logistic(cell, place, drawn)}
        case _:
            common = Counter(row[-1] for row in drawn).most_common(1)[0][0]
            golds = [row[-1] for row in table(place.tables, cell.task, "test")]
            found = {"score": score(cell.task, golds, [common] * len(golds))}
    seconds = round(time.perf_counter() - started, 2)
    return {**cell._asdict(), "num_rows": len(drawn), "metric": TASKS[cell.task][1], "seconds": seconds, **found}


@cache
def table(tables: Path, task: str, split: str) -> list[Row]:
    """Read a table once."""
    return read_table(tables / task / f"{split}.csv")


def draw_rows(train: Sequence[Row], cell: Cell) -> list[Row]:
    """Draw rows as somebody's own: classes have their shares, and at least one row each, as far as there is room."""
    rows = [train[place] for place in np.random.default_rng(cell.draw).permutation(len(train))]
    if cell.rows == "all":
        return rows
    if TASKS[cell.task][0] != "regression":
        counts, seen = Counter(row[-1] for row in rows), Counter[str]()
        ranks = []
        for row in rows:
            ranks.append((seen[row[-1]] + 0.5) / counts[row[-1]] if seen[row[-1]] else 0.0)
            seen[row[-1]] += 1
        rows = [rows[place] for place in np.argsort(ranks, kind="stable")]
    return rows[: int(cell.rows)]


def run_bertvision(cell: Cell, place: Place, drawn: list[Row], settings: dict[str, Any]) -> dict[str, Any]:
    """Train as somebody with a table would."""
    import bertvision

    (task, metric), folder = TASKS[cell.task], place.tables / cell.task
    data: dict[str, Any] = {"extra_dev_sets": {"test": str(folder / "test.csv")}}
    if task == "classification":
        data["labels"] = sorted({row[-1] for row in table(place.tables, cell.task, "train")})
    with tempfile.TemporaryDirectory() as name:
        write_table(Path(name, "train.csv"), drawn)
        result = bertvision.train(
            Path(name, "train.csv"),
            task=task,
            text="first" if len(drawn[0]) == 2 else ("first", "second"),
            label="label",
            dev=folder / "dev.csv",
            encoder=place.encoder,
            settings={"data": data, "device": place.device, **settings},
        )
        scores = {name: each.get(f"test_{metric}") for name, each in result.scores.items()}
    models = {name: None if value is None else round(value, 2) for name, value in scores.items()}
    return {"score": models[result.best], "best": result.best, "models": models}


def run_logistic(cell: Cell, place: Place, drawn: list[Row]) -> float:
    """Fit a logistic regression on the mean-pooled last state, its strength chosen by cross-validation."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    asked = table(place.tables, cell.task, "test")
    golds, test = [row[-1] for row in asked], features(place.encoder, tuple(asked))
    if TASKS[cell.task][0] == "regression":
        return score(cell.task, golds, test[:, -1])
    train, labels = features(place.encoder, tuple(drawn)), [row[-1] for row in drawn]
    strength, few = 0.01, slice(MOST_CHOSEN_ON)
    if (folds := min(5, *Counter(labels[few]).values())) > 1:
        line = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
        search = GridSearchCV(line, {"logisticregression__C": np.logspace(-5, 1, 7)}, cv=folds)
        strength = search.fit(train[few], labels[few]).best_params_["logisticregression__C"]
    line = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=300)).fit(train, labels)
    return score(cell.task, golds, line.predict(test))


@cache
def features(encoder: str, rows: tuple[Row, ...], size: int = 128) -> np.ndarray:
    """Return the mean-pooled last state of each row; of a pair u, v, |u-v|, u*v and the cosine."""
    import torch

    from bertvision.encoder.load import load_encoder

    loaded = load_encoder(encoder)
    columns = []
    for texts in list(zip(*rows, strict=True))[:-1]:
        means = []
        for first in range(0, len(texts), size):
            part = list(texts[first : first + size])
            batch = loaded.tokenizer(part, padding=True, truncation=True, max_length=256, return_tensors="pt")
            with torch.no_grad():
                states, mask = loaded.model.eval()(**batch).last_hidden_state, batch["attention_mask"][:, :, None]
            means.append(((states * mask).sum(dim=1) / mask.sum(dim=1)).numpy())
        columns.append(np.concatenate(means))
    if len(columns) == 1:
        return columns[0]
    u, v = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in columns)
    return np.concatenate([u, v, np.abs(u - v), u * v, (u * v).sum(axis=1, keepdims=True)], axis=1)


def score(task: str, golds: Sequence[str], found: Sequence[Any] | np.ndarray) -> float:
    """Return a percentage, as the task has it."""
    from sklearn.metrics import matthews_corrcoef

    match TASKS[task][1]:
        case "accuracy":
            value = float(np.mean([gold == each for gold, each in zip(golds, found, strict=True)]))
        case "matthews":
            value = float(matthews_corrcoef(list(golds), list(found)))
        case _:
            value = float(np.corrcoef([float(gold) for gold in golds], [float(each) for each in found])[0, 1])
    return round(100 * value, 2)


# Reporting


def cell_of(record: dict[str, Any]) -> Cell:
    """Return what a record is of."""
    return Cell(*(record[name] for name in Cell._fields))


def read_records(out: Path) -> list[dict[str, Any]]:
    """Read all finished cells of a folder, also those of several files."""
    plain = [path.read_text(encoding="utf-8") for path in sorted(out.glob("*.jsonl"))]
    packed = [lzma.decompress(path.read_bytes()).decode("utf-8") for path in sorted(out.glob("*.jsonl.xz"))]
    return [json.loads(line) for text in [*plain, *packed] for line in text.splitlines() if line]


def report(records: Sequence[dict[str, Any]]) -> str:
    """Lay out each side's mean over the draws that all sides of a table and size have, and the mean over tables."""
    scores = {cell_of(each): each["score"] for each in records if each["score"] is not None}
    for each in records:  # the heads of a default run are sides, too
        heads = each.get("models", {}) if each["side"] == "default" else {}
        scores |= {cell_of(each)._replace(side=name): value for name, value in heads.items() if value is not None}
    sides = list(dict.fromkeys(cell.side for cell in scores))
    lines = [f"| encoder | rows | table | draws | {' | '.join(sides)} |", "| --- " * (len(sides) + 4) + "|"]
    for encoder in dict.fromkeys(cell.encoder for cell in scores):
        for rows in SIZES:
            means: dict[str, list[float]] = {}
            for task in TASKS:
                cells = [cell for cell in scores if cell[:3] == (encoder, task, rows)]
                present = [side for side in sides if any(cell.side == side for cell in cells)]
                by_side = [{cell.draw for cell in cells if cell.side == side} for side in present]
                draws = sorted(set.intersection(*by_side)) if by_side else []
                if draws:
                    of_draws = {
                        side: [scores[Cell(encoder, task, rows, draw, side)] for draw in draws] for side in present
                    }
                    lines.append(_line([encoder, rows, task, f"{len(draws)}"], sides, of_draws))
                    for side, values in of_draws.items():
                        means.setdefault(side, []).append(float(np.mean(values)))
            if means:
                count = max(map(len, means.values()))
                whole = {side: values for side, values in means.items() if len(values) == count}
                lines.append(_line([encoder, rows, f"mean of {count}", ""], sides, whole))
    return "\n".join(lines)


def _line(start: Sequence[str], sides: Sequence[str], values: dict[str, list[float]]) -> str:
    cells = [f"{np.mean(values[side]):.1f}" if side in values else "" for side in sides]
    return f"| {' | '.join([*start, *cells])} |"


if __name__ == "__main__":
    main()
