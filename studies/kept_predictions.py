"""The dev predictions of a study's rows, packed beside its records so that anyone can score them again."""

import json
import lzma
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertvision.data.squad import read_squad_file
from bertvision.errors import DataError, FolderError
from bertvision.evaluate.compare import Shown
from bertvision.files import write_bytes, write_json_rows
from bertvision.predictions.files import read_prediction_folder
from bertvision.records import fraction_name, read_records
from bertvision.records.runs import read_packed
from bertvision.scoring.squad import Scores, score_squad2
from bertvision.settings import Config
from bertvision.tables import Cell, Cells, Number, Table

KEPT = "predictions.jsonl.xz"
DIGITS = 3  # of null odds: more would double the file
SHOWN = ("exact", "f1", "best_f1")
RowPlace = tuple[str, float | None]  # a row, and its fraction


class KeptRow(Config):
    """What a row answered to the questions of dev, in the order of its file."""

    model: str
    fraction: float | None
    seed: int
    predictions: tuple[str, ...]
    best_spans: tuple[str, ...] | None = None  # these and the odds give scores at the best threshold
    null_odds: tuple[float, ...] | None = None


def keep_predictions(out: Path, shown: Sequence[Shown], gold: Path, with_odds: Collection[RowPlace]) -> Path:
    """Pack the predictions of rows, of some with best spans and null odds, into a study's folder."""
    ids = [question.id for question in read_squad_file(gold).examples]
    lines = []
    for each in shown:
        record, found = each.record, read_prediction_folder(each.place, with_candidates=False)
        line: dict[str, Any] = {"model": record.model, "fraction": record.fraction, "seed": record.seed}
        line |= {"predictions": [found.answers[id] for id in ids]}
        if (record.model, record.fraction) in with_odds and found.best_spans and found.null_odds:
            line |= {"best_spans": [found.best_spans[id] for id in ids]}
            line |= {"null_odds": [round(found.null_odds[id], DIGITS) for id in ids]}
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    write_bytes(out / KEPT, lzma.compress("".join(lines).encode("utf-8")))
    return out / KEPT


def read_kept(folder: Path) -> list[KeptRow]:
    """Read the predictions that lie packed in a study's folder."""
    if not (folder / KEPT).exists():
        raise FolderError(f"{folder}: no {KEPT} in it; give a study's folder that has one: results/reproduce/headline")
    return read_packed(KeptRow, folder / KEPT, "a row's predictions")


def rescore(folder: Path, gold: Path, out: Path | None = None) -> Table:
    """Score kept predictions officially, and lay that out beside what the records hold; `out` gets them as files."""
    answered = read_kept(folder)
    questions = read_squad_file(gold).examples
    ids = [question.id for question in questions]
    recorded = {(each.model, each.fraction, each.seed): each.scores for each in read_records(folder)}
    rows: list[Cells] = []
    for kept in answered:
        if len(kept.predictions) != len(questions):
            raise DataError(
                f"{gold}: {len(questions):,} questions, expected the {len(kept.predictions):,} that {folder / KEPT} "
                "answers; give the dev file that the study was scored on"
            )
        answers = dict(zip(ids, kept.predictions, strict=True))
        files: dict[str, Mapping[str, Any]] = {"predictions": answers}
        scores = score_squad2(questions, answers)
        if kept.best_spans is not None and kept.null_odds is not None:
            spans = dict(zip(ids, kept.best_spans, strict=True))
            odds = dict(zip(ids, kept.null_odds, strict=True))
            scores["best_f1"] = score_squad2(questions, spans, odds)["best_f1"]
            files |= {"best_spans": spans, "null_odds": odds}
        name, before = fraction_name(kept.fraction), recorded[kept.model, kept.fraction, kept.seed]
        cells = [(_cell(scores, score), _cell(before, score) if score in scores else "") for score in SHOWN]
        rows.append((kept.model, name, str(kept.seed), *(cell for pair in cells for cell in pair)))
        if out is not None:
            for file, content in files.items():
                write_json_rows(out / f"{kept.model}-{name}-seed{kept.seed}" / f"{file}.json", content)
    columns = ("model", "fraction", "seed", "EM", "recorded EM", "F1", "recorded F1", "best F1", "recorded best F1")
    return Table(f"{folder}, scored again on {gold.name}", columns, tuple(rows))


def _cell(scores: Scores, score: str) -> Cell:
    return Number(scores[score], ".2f") if score in scores else ""
