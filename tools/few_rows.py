"""What a run makes of few rows, beside SetFit, a logistic regression and guessing: results/few_rows/.

    python tools/few_rows.py prepare DATA TABLES      # DATA holds glue/, squad2/ and books/; TABLES gets 9 MB
    python tools/few_rows.py measure TABLES --encoders MiniLM=default,MPNet=FOLDER --workers 10 --minutes 9
    python tools/few_rows.py report                   # tables and a figure of what is finished

Settings are chosen on other rows: `prepare --choosing DATA TABLES`, and sides such as `contrastive:lr=5e-5:pairs=1000`.

A cell is one encoder, task, number of rows, draw and side, and a line of JSON. Cells that are there are not measured
again. First draws and small sizes come first, so that what is finished at any moment is balanced. In a draw classes
have their shares, and at least one row each where there is room. Sides:
- `default`: `bertvision.train` with nothing set; its best model, chosen on dev, and beside it its regression alone;
- `contrastive`: the same with `finetune.objective: contrastive`;
- `setfit`: SetFit, or its recipe in torch where it is not installed (`by` says which), texts of a pair joined, steps
  bounded by --setfit-steps; not for numbers, nor for more than MOST_PAIRED rows, whose pairs grow with the square;
- `logistic`: scikit-learn on the mean over tokens of the last state (pairs: u, v, |u-v|, u*v; numbers: the cosine);
- `majority`: the class that occurs most often.
"""

import argparse
import copy
import importlib.util
import json
import lzma
import multiprocessing
import os
import queue
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from few_rows_data import Row, prepare, read_table, write_table

OUT = Path("results/few_rows")
RECORDS = "few_rows.jsonl"
SIZES = ("8", "16", "64", "250", "1000", "all")
MOST_DRAWS = {"1000": 3, "all": 1}  # of sizes whose draws differ little; others: --draws
MOST_PAIRED = 1000  # rows that SetFit pairs
MOST_CHOSEN_ON = 1000  # rows that the logistic regression's strength is chosen on
SIDES = ("default", "contrastive", "setfit", "logistic", "majority")
# The default run's heads; the first is compared with the second, the best of the papers.
HEADS = (
    "regression",
    "adapter_386_shared_skip",
    "last_regression",
    "learned_pooling",
    "average_pooling",
    "last_linear",
)
TIMED = ("default", "contrastive", "setfit")
Draws = dict[str, list[int]]  # by task
NAMES = {
    "default": "default run",
    "regression": "its regression",
    "contrastive": "contrastive run",
    "setfit": "SetFit",
    "logistic": "logistic regression",
    "majority": "majority",
}


class Asked(NamedTuple):
    """A table's task and score."""

    task: str
    metric: str


TASKS = {
    "SST-2": Asked("classification", "accuracy"),
    "MRPC": Asked("classification", "accuracy"),
    "CoLA": Asked("cola", "matthews"),
    "RTE": Asked("classification", "accuracy"),
    "STS-B": Asked("regression", "pearson"),
    "MNLI-10k": Asked("classification", "accuracy"),
    "QQP-10k": Asked("classification", "accuracy"),
    "questions": Asked("classification", "accuracy"),
    "books": Asked("classification", "accuracy"),
}


class Cell(NamedTuple):
    """What is measured at once."""

    encoder: str
    task: str
    rows: str
    draw: int
    side: str


class Given(NamedTuple):
    """Where and how cells are measured."""

    tables: Path
    encoders: tuple[tuple[str, str], ...]  # what they are called, and what `bertvision.train` is given
    device: str
    setfit_steps: int
    deadline: float  # seconds since the epoch

    def encoder(self, name: str) -> str:
        """Return the encoder of that name."""
        return dict(self.encoders)[name]


def main() -> None:
    """Do what is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    preparing = verbs.add_parser("prepare")
    preparing.add_argument("data", type=Path)
    preparing.add_argument("tables", type=Path)
    preparing.add_argument("--choosing", action="store_true")
    measuring = verbs.add_parser("measure")
    measuring.add_argument("tables", type=Path)
    measuring.add_argument("--encoders", default="MiniLM=default")
    measuring.add_argument("--tasks", default=",".join(TASKS))
    measuring.add_argument("--sizes", default=",".join(SIZES))
    measuring.add_argument("--sides", default=",".join(SIDES))
    measuring.add_argument("--draws", type=int, default=10)
    measuring.add_argument("--device", default="auto")
    measuring.add_argument("--workers", type=int, default=1)
    measuring.add_argument("--minutes", type=float, default=60.0)
    measuring.add_argument("--setfit-steps", type=int, default=500)
    for verb in (measuring, verbs.add_parser("report")):
        verb.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    if given.verb == "prepare":
        prepare(given.data, given.tables, choosing=given.choosing)
    elif given.verb == "measure":
        measure_all(given)
    else:
        write_report(given.out)


# Measuring


def measure_all(given: argparse.Namespace) -> None:
    """Measure what is not in the records yet, in several processes, until the time is up."""
    given.out.mkdir(parents=True, exist_ok=True)
    finished = {cell_of(record) for record in read_records(given.out)}
    cells = [cell for cell in all_cells(given) if cell not in finished]
    print(f"{len(finished)} cells are there, {len(cells)} to measure", flush=True)
    encoders = tuple((name, place) for name, _, place in (each.partition("=") for each in given.encoders.split(",")))
    stop = time.time() + 60 * given.minutes
    shared = Given(given.tables, encoders, given.device, given.setfit_steps, stop)
    context = multiprocessing.get_context("spawn")
    todo: Any = context.Queue()
    done: Any = context.Queue()
    for cell in [*cells, *[None] * given.workers]:
        todo.put(cell)
    workers = [context.Process(target=work, args=(todo, done, shared), daemon=True) for _ in range(given.workers)]
    for worker in workers:
        worker.start()
    with (given.out / RECORDS).open("a", encoding="utf-8") as file:
        for record in finished_by(workers, done, stop):
            if "error" not in record:
                file.write(json.dumps(record) + "\n")
                file.flush()
            print(json.dumps(record), flush=True)
    for worker in workers:
        worker.terminate()


def all_cells(given: argparse.Namespace) -> Iterator[Cell]:
    """List all cells, the first draws and the small sizes first."""
    encoders = [each.partition("=")[0] for each in given.encoders.split(",")]
    for draw in range(given.draws):
        for rows in given.sizes.split(","):
            if draw < MOST_DRAWS.get(rows, given.draws):
                for encoder in encoders:
                    for task in given.tasks.split(","):
                        yield from (
                            Cell(encoder, task, rows, draw, side)
                            for side in given.sides.split(",")
                            if is_possible(task, rows, side)
                        )


def is_possible(task: str, rows: str, side: str) -> bool:
    """Return whether a side has something to measure there."""
    if side == "setfit":
        return TASKS[task].task != "regression" and rows != "all" and int(rows) <= MOST_PAIRED
    return side != "majority" or TASKS[task].task != "regression"


def finished_by(workers: Sequence[Any], done: Any, stop: float) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    """Return what workers finish, until all have ended or the time is up."""
    while time.time() < stop:
        try:
            yield done.get(timeout=1.0)
        except queue.Empty:
            if not any(worker.is_alive() for worker in workers):
                return


def work(todo: Any, done: Any, given: Given) -> None:  # noqa: ANN401 (queues)
    """Measure one cell after the other, in a process of its own."""
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // 16))
    for cell in iter(todo.get, None):
        if time.time() > given.deadline:
            return
        try:
            done.put({**cell._asdict(), **measure(cell, given)})
        except Exception as error:  # a cell that cannot be measured is said, and tried again next time
            where = traceback.extract_tb(error.__traceback__)[-1]
            done.put({**cell._asdict(), "error": f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"})


def measure(cell: Cell, given: Given) -> dict[str, Any]:
    """Return a cell's score on test, and the seconds that it took."""
    drawn = draw_rows(table(given.tables, cell.task, "train"), cell)
    started = time.perf_counter()
    side, *own = cell.side.split(":")
    match side:
        case "default":
            found = run_bertvision(cell, given, drawn, {})
        case "contrastive":
            settings = {name: json.loads(value) for name, _, value in (each.partition("=") for each in own)}
            found = run_bertvision(cell, given, drawn, {"finetune": {"objective": "contrastive", **settings}})
        case "setfit":
            found = run_setfit(cell, given, drawn)
        case "logistic":
            found = run_logistic(cell, given, drawn)
        case _:
            common = Counter(row[-1] for row in drawn).most_common(1)[0][0]
            test = table(given.tables, cell.task, "test")
            found = {"score": score(cell.task, [row[-1] for row in test], [common] * len(test))}
    seconds = time.perf_counter() - started
    return {"num_rows": len(drawn), "metric": TASKS[cell.task].metric, "seconds": round(seconds, 2), **found}


@cache
def table(tables: Path, task: str, split: str) -> list[Row]:
    """Read a table once."""
    return read_table(tables / task / f"{split}.csv")


def draw_rows(train: Sequence[Row], cell: Cell) -> list[Row]:
    """Draw rows as somebody's own: classes have their shares, and at least one row each, as far as there is room."""
    rows = [train[place] for place in np.random.default_rng(cell.draw).permutation(len(train))]
    if cell.rows == "all":
        return rows
    if TASKS[cell.task].task != "regression":
        counts, seen = Counter(row[-1] for row in rows), Counter[str]()
        shares = []
        for row in rows:
            shares.append((seen[row[-1]] + 0.5) / counts[row[-1]] if seen[row[-1]] else 0.0)
            seen[row[-1]] += 1
        rows = [rows[place] for place in np.argsort(shares, kind="stable")]
    return rows[: int(cell.rows)]


def run_bertvision(cell: Cell, given: Given, drawn: list[Row], settings: dict[str, Any]) -> dict[str, Any]:
    """Train as somebody with a table would."""
    import bertvision

    asked, own = TASKS[cell.task], given.tables / cell.task
    labels = sorted({row[-1] for row in table(given.tables, cell.task, "train")})
    known = {"labels": labels} if asked.task == "classification" else {}
    text: Any = "first" if len(drawn[0]) == 2 else ("first", "second")
    with tempfile.TemporaryDirectory() as folder:
        write_table(Path(folder, "train.csv"), drawn)
        result = bertvision.train(
            Path(folder, "train.csv"),
            task=asked.task,
            text=text,
            label="label",
            dev=own / "dev.csv",
            encoder=given.encoder(cell.encoder),
            settings={"data": {"also": {"test": str(own / "test.csv")}, **known}, "device": given.device, **settings},
        )
        scores = {name: each.get(f"test_{asked.metric}") for name, each in result.scores.items()}
        best = result.best
    models = {name: None if value is None else round(value, 2) for name, value in scores.items()}
    return {"score": models[best], "best": best, "models": models}


def run_setfit(cell: Cell, given: Given, drawn: list[Row]) -> dict[str, Any]:
    """Train SetFit with its own defaults, but for a bound on its steps; its recipe in torch where it is missing."""
    labels = sorted({row[-1] for row in drawn})
    numbers = [labels.index(row[-1]) for row in drawn]
    test = table(given.tables, cell.task, "test")
    separator = f" {loaded_encoder(given.encoder(cell.encoder), device_of(given)).tokenizer.sep_token} "
    texts, asked = ([separator.join(row[:-1]) for row in rows] for rows in (drawn, test))
    by = setfit_package if importlib.util.find_spec("setfit") else setfit_recipe
    found = by(given, cell, texts, numbers, asked)
    return {"score": score(cell.task, [row[-1] for row in test], [labels[each] for each in found]), "by": by.__name__}


def setfit_package(
    given: Given, cell: Cell, texts: list[str], numbers: list[int], asked: list[str]
) -> Sequence[int] | np.ndarray:
    """Train with the package, and predict."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments, logging
    from sklearn.linear_model import LogisticRegression

    logging.set_verbosity_error()
    body = copy.deepcopy(setfit_body(given.encoder(cell.encoder))).to(device_of(given))
    model = SetFitModel(model_body=body, model_head=LogisticRegression())
    train = Dataset.from_dict({"text": texts, "label": numbers})
    pairs = len(texts) * (len(texts) + 1) // 2
    steps = given.setfit_steps if pairs > 8 * given.setfit_steps else -1  # surely more than half of 16 pairs a step
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=steps, report_to="none", save_strategy="no", show_progress_bar=False
        )
        Trainer(model=model, args=arguments, train_dataset=train).train()
    found: np.ndarray = model.predict(asked, as_numpy=True).astype(int)
    return found


@cache
def setfit_body(encoder: str) -> Any:  # noqa: ANN401 (a SentenceTransformer)
    """Return an encoder with a mean over its tokens."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    from bertvision.encoder.load import load_encoder

    with tempfile.TemporaryDirectory() as folder:
        loaded = load_encoder(encoder)
        loaded.model.save_pretrained(folder)
        loaded.tokenizer.save_pretrained(folder)
        return SentenceTransformer(modules=[Transformer(folder), Pooling(loaded.shape.hidden, "mean")], device="cpu")


def setfit_recipe(
    given: Given, cell: Cell, texts: list[str], numbers: list[int], asked: list[str]
) -> Sequence[int] | np.ndarray:
    """Do what the package does: oversampled pairs, cosines' squared error, AdamW at 2e-5, then a regression."""
    import torch
    from sklearn.linear_model import LogisticRegression
    from torch.nn import functional as F

    from bertvision.encoder.load import load_encoder

    encoder, device = load_encoder(given.encoder(cell.encoder)), device_of(given)
    encoder.model.to(device).train()
    pairs = oversampled_pairs(numbers, 16 * given.setfit_steps)
    batches = [pairs[first : first + 16] for first in range(0, len(pairs), 16)]
    optimizer = torch.optim.AdamW(encoder.model.parameters(), lr=2e-5, weight_decay=0.0)
    warmup = -(-len(batches) // 10)
    rate = lambda step: min(step / warmup, (len(batches) - step) / max(1, len(batches) - warmup))  # noqa: E731
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    torch.manual_seed(42)
    for batch in batches:
        states = means_of(encoder, [texts[row] for pair in batch for row in pair[:2]], device)
        wanted = torch.tensor([float(pair[2]) for pair in batch], device=device)
        F.mse_loss(F.cosine_similarity(states[::2], states[1::2]), wanted).backward()
        torch.nn.utils.clip_grad_norm_(encoder.model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    encoder.model.eval()
    model = LogisticRegression().fit(pooled(encoder, texts, device), numbers)
    found: np.ndarray = model.predict(pooled(encoder, asked, device))
    return found


def oversampled_pairs(numbers: list[int], most: int) -> list[tuple[int, int, bool]]:
    """Return the package's pairs: all unique ones, of the rarer sort again and again, alike and different in turns."""
    first, second = np.triu_indices(len(numbers))
    order = np.random.RandomState(42).permutation(len(first))
    listed = [(int(first[at]), int(second[at]), numbers[first[at]] == numbers[second[at]]) for at in order]
    alike, different = ([pair for pair in listed if pair[2] == wanted][: most // 2] for wanted in (True, False))
    if not different:
        return alike
    length = max(len(alike), len(different))
    turns = ((alike[at % len(alike)], different[at % len(different)]) for at in range(length))
    return [pair for both in turns for pair in both]


def run_logistic(cell: Cell, given: Given, drawn: list[Row]) -> dict[str, Any]:
    """Fit a logistic regression on the mean-pooled last state, its strength chosen by cross-validation."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    golds = [row[-1] for row in table(given.tables, cell.task, "test")]
    test = test_features(given, cell.encoder, cell.task)
    if TASKS[cell.task].task == "regression":
        return {"score": score(cell.task, golds, test[:, -1])}
    train, labels = features(given, cell.encoder, drawn), [row[-1] for row in drawn]
    strength, few = 0.01, slice(MOST_CHOSEN_ON)
    if (folds := min(5, *Counter(labels[few]).values())) > 1:
        line = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
        search = GridSearchCV(line, {"logisticregression__C": np.logspace(-5, 1, 7)}, cv=folds)
        strength = search.fit(train[few], labels[few]).best_params_["logisticregression__C"]
    line = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=300)).fit(train, labels)
    return {"score": score(cell.task, golds, line.predict(test))}


@cache
def test_features(given: Given, encoder: str, task: str) -> np.ndarray:
    """Return the features of a task's test once."""
    return features(given, encoder, table(given.tables, task, "test"))


def features(given: Given, encoder: str, rows: Sequence[Row]) -> np.ndarray:
    """Return the mean-pooled last state of each row; of a pair u, v, |u-v|, u*v and the cosine."""
    device = device_of(given)
    loaded = loaded_encoder(given.encoder(encoder), device)
    texts = [pooled(loaded, [row[place] for row in rows], device) for place in range(len(rows[0]) - 1)]
    if len(texts) == 1:
        return texts[0]
    u, v = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in texts)
    return np.concatenate([u, v, np.abs(u - v), u * v, (u * v).sum(axis=1, keepdims=True)], axis=1)


def pooled(encoder: Any, texts: Sequence[str], device: str, size: int = 128) -> np.ndarray:  # noqa: ANN401
    """Return the mean over tokens of the last state of any number of texts."""
    import torch

    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    found = np.zeros((len(texts), encoder.shape.hidden), dtype=np.float32)
    for first in range(0, len(order), size):
        part = order[first : first + size]
        with torch.no_grad():
            found[part] = means_of(encoder, [texts[place] for place in part], device).cpu().numpy()
    return found


def means_of(encoder: Any, texts: list[str], device: str) -> Any:  # noqa: ANN401 (an Encoder, a Tensor)
    """Return the mean over tokens of the last state of a batch."""
    batch = encoder.tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt").to(device)
    states, mask = encoder.model(**batch).last_hidden_state, batch["attention_mask"][:, :, None]
    return (states * mask).sum(dim=1) / mask.sum(dim=1)


@cache
def loaded_encoder(encoder: str, device: str) -> Any:  # noqa: ANN401 (an Encoder, not to import torch at the start)
    """Load an encoder once in a process."""
    from bertvision.encoder.load import load_encoder

    loaded = load_encoder(encoder)
    loaded.model.to(device).eval()
    return loaded


def device_of(given: Given) -> str:
    """Return where to compute."""
    import torch

    return ("cuda" if torch.cuda.is_available() else "cpu") if given.device == "auto" else given.device


def score(task: str, golds: Sequence[str], found: Sequence[Any] | np.ndarray) -> float:
    """Return a percentage, as the task has it."""
    from sklearn.metrics import matthews_corrcoef

    match TASKS[task].metric:
        case "accuracy":
            value = float(np.mean([gold == each for gold, each in zip(golds, found, strict=True)]))
        case "matthews":
            value = float(matthews_corrcoef(list(golds), list(found)))
        case _:
            value = float(np.corrcoef([float(gold) for gold in golds], [float(each) for each in found])[0, 1])
    return round(100 * value, 2)


# Records -> tables and a figure


def cell_of(record: dict[str, Any]) -> Cell:
    """Return what a record is of."""
    return Cell(*(record[name] for name in Cell._fields))


def read_records(out: Path) -> list[dict[str, Any]]:
    """Read all finished cells of a folder, also those of several files."""
    plain = [path.read_text(encoding="utf-8") for path in sorted(out.glob("*.jsonl"))]
    packed = [lzma.decompress(path.read_bytes()).decode("utf-8") for path in sorted(out.glob("*.jsonl.xz"))]
    return [json.loads(line) for text in [*plain, *packed] for line in text.splitlines() if line]


class Scores:
    """Scores by cell; the default run's regression alone is a side of its own."""

    def __init__(self, records: Sequence[dict[str, Any]]) -> None:
        self.values: dict[Cell, float] = {}
        self.seconds: dict[Cell, float] = {}
        self.heads: dict[Cell, float] = {}  # of the default run, each by its name as the side
        for record in records:
            cell = cell_of(record)
            if record["score"] is not None:
                self.values[cell], self.seconds[cell] = record["score"], record["seconds"]
            if cell.side == "default":
                scored = {name: value for name, value in record["models"].items() if value is not None}
                self.heads.update({cell._replace(side=name): value for name, value in scored.items()})
                if "regression" in scored:
                    self.values[cell._replace(side="regression")] = scored["regression"]

    def draws(self, encoder: str, task: str, rows: str, sides: Sequence[str]) -> list[int]:
        """Return the draws that all these sides have finished."""
        found = [
            {cell.draw for cell in self.values if cell == Cell(encoder, task, rows, cell.draw, side)} for side in sides
        ]
        return sorted(set.intersection(*found))

    def mean(self, encoder: str, task: str, rows: str, side: str, draws: Sequence[int]) -> float:
        """Return the mean over some draws."""
        return float(np.mean([self.values[Cell(encoder, task, rows, draw, side)] for draw in draws]))

    def sides(self) -> list[str]:
        """Name the sides: those of NAMES first, then variants."""
        found = {cell.side for cell in self.values}
        return [*(side for side in NAMES if side in found), *sorted(found - NAMES.keys())]

    def encoders(self) -> list[str]:
        """Name the encoders."""
        return sorted({cell.encoder for cell in self.values})


def write_report(out: Path) -> None:
    """Write few_rows.md, and heads.md and few_rows.png beside it."""
    scores = Scores(read_records(out))
    without = [side for side in scores.sides() if side != "contrastive"]  # which fewer draws were given to
    parts = [average_table(scores, encoder, without) for encoder in scores.encoders()]
    parts += [average_table(scores, encoder, scores.sides()) for encoder in scores.encoders()]
    parts += [task_table(scores, encoder) for encoder in scores.encoders()]
    (out / "few_rows.md").write_text("\n".join(parts), encoding="utf-8")
    heads = [head_table(scores, encoder) for encoder in scores.encoders()]
    (out / "heads.md").write_text("\n".join(heads), encoding="utf-8")
    draw_figure(scores, out / "few_rows.png")


def compared_draws(scores: Scores, encoder: str, rows: str, asked: Sequence[str]) -> tuple[list[str], Draws]:
    """Return the sides that are there at a size, and the draws of each task that all of them have."""
    there = {cell.side for cell in scores.values if (cell.encoder, cell.rows) == (encoder, rows)}
    sides = [side for side in asked if side in there]
    draws = {task: scores.draws(encoder, task, rows, sides) for task in TASKS} if sides else {}
    return sides, {task: own for task, own in draws.items() if own}


def averages(scores: Scores, encoder: str, rows: str, asked: Sequence[str]) -> tuple[dict[str, float], int, int]:
    """Return each side's mean over the tasks and draws that all sides have, and how many these are."""
    sides, draws = compared_draws(scores, encoder, rows, asked)
    means = {
        side: float(np.mean([scores.mean(encoder, task, rows, side, own) for task, own in draws.items()]))
        for side in sides
        if draws
    }
    return means, len(draws), min(map(len, draws.values()), default=0)


def average_table(scores: Scores, encoder: str, sides: Sequence[str]) -> str:
    """Lay out means over tasks, how far the default run is above SetFit, and seconds."""
    names, timed = [NAMES.get(side, side) for side in sides], [side for side in TIMED if side in sides]
    seconds_of = ", ".join(NAMES[side] for side in timed)
    lines = [f"| {encoder}: rows | tasks | draws | {' | '.join(names)} | above SetFit (95%) | seconds: {seconds_of} |"]
    lines.append("| --- " * (len(names) + 5) + "|")
    for rows in SIZES:
        means, tasks, draws = averages(scores, encoder, rows, sides)
        if means:
            cells = [f"{means[side]:.1f}" if side in means else "" for side in sides]
            seconds = ", ".join(filter(None, (_median_seconds(scores, encoder, rows, side) for side in timed)))
            above = above_setfit(scores, encoder, rows, sides)
            lines.append(f"| {rows} | {tasks} | {draws} | {' | '.join(cells)} | {above} | {seconds} |")
    return "\n".join(lines) + "\n"


def above_setfit(scores: Scores, encoder: str, rows: str, asked: Sequence[str]) -> str:
    """Return how far the default run is above SetFit."""
    sides, draws = compared_draws(scores, encoder, rows, asked)
    if not {"default", "setfit"} <= set(sides) or not draws:
        return ""
    shared = sorted(set.intersection(*map(set, draws.values())))
    by_draw = [
        [np.mean([scores.values[Cell(encoder, task, rows, draw, side)] for task in draws]) for draw in shared]
        for side in ("default", "setfit")
    ]
    return with_interval(np.subtract(*np.array(by_draw)))


def with_interval(above: np.ndarray) -> str:
    """Return a mean over draws with its t interval, where there are several."""
    if len(above) < 2:
        return f"{above.mean():+.1f}" if len(above) else ""
    from scipy import stats

    half = stats.t.ppf(0.975, len(above) - 1) * above.std(ddof=1) / np.sqrt(len(above))
    return f"{above.mean():+.1f} ({above.mean() - half:+.1f} to {above.mean() + half:+.1f})"


def head_table(scores: Scores, encoder: str) -> str:
    """Lay out the default run's heads on the frozen encoder: means over the tasks and draws that have all of them."""
    lines = [f"| {encoder}, frozen: rows | tasks | draws | {' | '.join(HEADS)} | {' less '.join(HEADS[:2])} (95%) |"]
    lines.append("| --- " * (len(HEADS) + 4) + "|")
    for rows in (size for size in SIZES if size != "all"):  # with all rows the encoder is tuned
        drawn: dict[str, set[int]] = {}
        for task in TASKS:
            cells = [
                [cell.draw for cell in scores.heads if cell[:3] == (encoder, task, rows) and cell.side == head]
                for head in HEADS
            ]
            drawn[task] = set.intersection(*map(set, cells))
        tasks = [task for task, draws in drawn.items() if draws]
        if not tasks:
            continue
        shared = sorted(set.intersection(*(drawn[task] for task in tasks)))
        means = np.array(
            [
                [np.mean([scores.heads[Cell(encoder, task, rows, draw, head)] for task in tasks]) for draw in shared]
                for head in HEADS
            ]
        )
        shown = " | ".join(f"{mean:.1f}" for mean in means.mean(axis=1))
        lines.append(f"| {rows} | {len(tasks)} | {len(shared)} | {shown} | {with_interval(means[0] - means[1])} |")
    return "\n".join(lines) + "\n"


def _median_seconds(scores: Scores, encoder: str, rows: str, side: str) -> str:
    own = [
        taken for cell, taken in scores.seconds.items() if (cell.encoder, cell.rows, cell.side) == (encoder, rows, side)
    ]
    return f"{np.median(own):.0f}" if own else ""


def task_table(scores: Scores, encoder: str) -> str:
    """Lay out each task's means over all draws of a side, and the default run's spread."""
    sides = scores.sides()
    lines = [f"| {encoder}: task | rows | draws of the run | {' | '.join(NAMES.get(side, side) for side in sides)} |"]
    lines.append("| --- " * (len(sides) + 3) + "|")
    for task in TASKS:
        for rows in SIZES:
            own = {side: scores.draws(encoder, task, rows, [side]) for side in sides}
            if any(own.values()):
                cells = [
                    f"{scores.mean(encoder, task, rows, side, draws):.1f}" if draws else ""
                    for side, draws in own.items()
                ]
                if len(own.get("default", [])) > 1:
                    values = [scores.values[Cell(encoder, task, rows, draw, "default")] for draw in own["default"]]
                    cells[0] += f" ± {np.std(values):.1f}"
                lines.append(f"| {task} | {rows} | {len(own.get('default', []))} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw_figure(scores: Scores, path: Path) -> None:
    """Draw each side's mean over the tasks against the number of rows, a panel for each encoder."""
    from matplotlib.figure import Figure

    encoders = scores.encoders()
    figure = Figure(figsize=(5.0, 3.2 * max(1, len(encoders))), layout="constrained")
    for place, encoder in enumerate(encoders, start=1):
        axes = figure.add_subplot(len(encoders), 1, place)
        sides = [side for side in scores.sides() if side != "contrastive"]
        means = {rows: averages(scores, encoder, rows, sides)[0] for rows in SIZES}
        for side in sides:
            points = [(SIZES.index(rows), own[side]) for rows, own in means.items() if side in own]
            if points:
                axes.plot(*zip(*points, strict=True), marker="o", label=NAMES.get(side, side))
        axes.set_xticks(range(len(SIZES)), SIZES)
        axes.set(title=encoder, xlabel="rows to train on", ylabel="mean score")
        axes.grid(alpha=0.2)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
