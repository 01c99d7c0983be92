"""The tables of `tools/few_rows.py`, cut from data at hand: FOLDER/<task>/{train,dev,test}.csv.

GLUE's training rows are drawn as somebody's own table, at most MOST of them; half of the scored rows choose a run's
best model (dev), the other half score it (test). Two tables look like one's own:
- `questions`: a question, and which of six articles it asks about (SQuAD 2.0 dev); the last quarter of each article's
  paragraphs is scored on;
- `books`: a paragraph, and which of six authors wrote it; of each author one whole book is scored on.
Settings are chosen on tables whose scored rows are training rows too (`choosing`), never on the rows reported.
"""

import csv
import gzip
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

MOST, SCORED = 10_000, 800  # rows to train on, and of dev and test together
CHOOSING = 1500  # rows to train on where settings are chosen
TITLES = ("Economic_inequality", "Immune_system", "Oxygen", "Rhine", "Steam_engine", "Warsaw")
AUTHORS = ("Charles Dickens", "Edgar Rice Burroughs", "H.G. Wells", "Jane Austen", "Lucy Maud Montgomery", "Mark Twain")
PER_AUTHOR = 500  # paragraphs to train on
WORDS = (30, 90)  # of a paragraph, shortest and longest
Row = tuple[str, ...]  # one text or two, and a label


class Layout(NamedTuple):
    """Where a task of GLUE has its rows, and in which columns (by name, or by number where there is no header)."""

    train: str
    scored: str
    columns: tuple[str | int, ...]  # of texts, then of the label


GLUE = {
    "SST-2": Layout("SST-2/train.tsv", "SST-2/dev.tsv", ("sentence", "label")),
    "MRPC": Layout("MRPC/train.tsv", "MRPC/msr_paraphrase_test.txt", ("#1 String", "#2 String", "Quality")),
    "CoLA": Layout("CoLA/train.tsv", "CoLA/dev.tsv", (3, 1)),
    "RTE": Layout("RTE/train.tsv", "RTE/dev.tsv", ("sentence1", "sentence2", "label")),
    "STS-B": Layout("STS-B/train.tsv", "STS-B/dev.tsv", ("sentence1", "sentence2", "score")),
    "MNLI-10k": Layout("MNLI-10k/mnli_train.tsv", "MNLI-10k/mnli_validation.tsv", ("premise", "hypothesis", "label")),
    "QQP-10k": Layout("QQP-10k/dev.tsv", "QQP-10k/test.tsv", (1, 2, 0)),
}


def prepare(data: Path, out: Path, *, choosing: bool = False) -> None:
    """Write all tables of a folder that holds glue/, squad2/ and books/."""
    for task, layout in GLUE.items():
        train, scored = (list(_read(data / "glue" / each, layout.columns)) for each in layout[:2])
        _write(out / task, train, scored, choosing=choosing)
    _write(out / "questions", *_questions(data / "squad2" / "dev-v2.0.json.gz"), choosing=choosing)
    _write(out / "books", *_books(sorted((data / "books").glob("train-*.jsonl.xz"))), choosing=choosing)


def _read(path: Path, columns: tuple[str | int, ...]) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:  # QQP-10k has some broken bytes
        lines = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        header = next(lines) if isinstance(columns[0], str) else []
        places = [header.index(each) if isinstance(each, str) else each for each in columns]
        for line in lines:
            if len(line) > max(places) and all(line[place].strip() for place in places):
                yield tuple(line[place].strip() for place in places)


def _questions(path: Path) -> tuple[list[Row], list[Row]]:
    train: list[Row] = []
    scored: list[Row] = []
    for article in json.loads(gzip.decompress(path.read_bytes()))["data"]:
        if article["title"] in TITLES:
            paragraphs, label = article["paragraphs"], article["title"].replace("_", " ")
            for place, paragraph in enumerate(paragraphs):
                rows = train if place < len(paragraphs) * 3 // 4 else scored
                rows += [(question["question"].strip(), label) for question in paragraph["qas"]]
    return train, scored


def _books(paths: list[Path]) -> tuple[list[Row], list[Row]]:
    books = [json.loads(line) for path in paths for line in lzma.decompress(path.read_bytes()).splitlines()]
    train: list[Row] = []
    scored: list[Row] = []
    for author in AUTHORS:
        own = sorted((each for each in books if each["author"] == author), key=lambda each: str(each["title"]))
        paragraphs = [[(text, author) for text in _paragraphs(book["text"])] for book in own]
        scored += paragraphs[-1]
        others = [row for book in paragraphs[:-1] for row in book]
        train += [others[place] for place in np.random.default_rng(0).permutation(len(others))[:PER_AUTHOR]]
    return train, scored


def _paragraphs(text: str) -> list[str]:
    found = [" ".join(each.split()) for each in text.split("\n\n")]
    return [each for each in found if WORDS[0] <= len(each.split()) <= WORDS[1]]


def _write(folder: Path, train: list[Row], scored: list[Row], *, choosing: bool) -> None:
    random = np.random.default_rng(0)
    train = [train[place] for place in random.permutation(len(train))[:MOST]]
    if choosing:
        train, scored = train[:CHOOSING], train[-SCORED // 2 :]
    known = {row[:-1] for row in train}
    scored = [row for row in dict.fromkeys(scored) if row[:-1] not in known]
    scored = [scored[place] for place in random.permutation(len(scored))[:SCORED]]
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train", train), ("dev", scored[::2]), ("test", scored[1::2])):
        write_table(folder / f"{name}.csv", rows)


def write_table(path: Path, rows: list[Row]) -> None:
    """Write rows as somebody's own CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow([*("first", "second")[: len(rows[0]) - 1], "label"])
        table.writerows(rows)


def read_table(path: Path) -> list[Row]:
    """Read such a file."""
    with path.open(encoding="utf-8", newline="") as file:
        return [tuple(row) for row in list(csv.reader(file))[1:]]
