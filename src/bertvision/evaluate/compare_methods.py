"""OUT/differences.json: how far methods lie from one of them, question by question; needs no torch."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertvision.analysis.scored import score_answers
from bertvision.data.example import Question
from bertvision.data.squad import read_squad
from bertvision.errors import DataError, FolderError
from bertvision.metrics.best_threshold import Sweep, build_sweep, resample_best_f1
from bertvision.metrics.resampling import Floats, interval_of, paired_bootstrap
from bertvision.predictions.files import PredictionFolder, read_prediction_folder
from bertvision.records import (
    Apart,
    DifferenceRecord,
    RunRecord,
    choose,
    fraction_name,
    read_record,
    record_paths,
    write_differences,
)
from bertvision.run_folder import folder_of_seed
from bertvision.tables import Cell, Number, Table

COLUMNS = ("model", "F1", "95% interval")
BEST_COLUMNS = ("best", "95% interval")
TASKS = ("squad1", "squad2")
Key = tuple[str, float | None, str]  # an experiment, a fraction, and the name of a row


class Shown(NamedTuple):
    """A record that a report shows, the name of its row, and the folder of its predictions, which may be absent."""

    record: RunRecord
    row: str
    place: Path

    @property
    def answers(self) -> Path:
        """Name the file without which there is nothing to compare."""
        return self.place / "predictions.json"


class ScoredVariant(NamedTuple):
    """A row at a fraction, with what its answers are worth in percent, by seed."""

    experiment: str
    fraction: float | None
    row: str
    worths: dict[int, Floats]  # the F1 of each answer
    bests: dict[int, Floats]  # the best F1 of all questions, then of resamples, where the files for it are there


class Differences(NamedTuple):
    """What was found, and where it was written."""

    differences: list[DifferenceRecord]
    path: Path

    def as_table(self) -> Table:
        """Lay out comparisons below headings of what they share; best thresholds only where one has them."""
        has_best = any(each.best for each in self.differences)
        columns = (*COLUMNS, *BEST_COLUMNS) if has_best else COLUMNS
        rows: list[tuple[Cell, ...]] = []
        for heading, group in groupby(sorted(self.differences, key=_heading), key=_heading):
            rows += [(heading,), *(_cells(each)[: len(columns)] for each in group)]
        return Table("", columns, tuple(rows))


def compare_folder(out: Path, gold: str, against: str) -> Differences:
    """Compare every row that a report of a run folder shows with one of them at the same fraction."""
    shown = _find_shown(out)
    there = [each for each in shown if each.answers.exists()]
    _check_rows(out, shown, there, against)
    questions = read_squad(gold, answers="texts", hub_split="validation").examples
    answered = _read_answered(there, gold, questions)
    differences = [each for row in answered for each in _compare(row, answered, against)]
    if not differences:
        raise FolderError(
            f"{out}: no row shares an experiment, a fraction and a seed with {against!r}; run the others with its "
            f"fractions and seeds, or choose another of {_names(there)} with --against"
        )
    return Differences(differences, write_differences(out, differences))


def _find_shown(out: Path) -> list[Shown]:
    """Find the rows that a report shows; refuse a folder without variants that answer questions."""
    places = [(read_record(path), path) for path in record_paths(out)]
    if not places:
        lack = "no records (*-seed*.json) below it" if out.is_dir() else "no such folder"
        raise FolderError(f"{out}: {lack}; give the run folder of an experiment with `variants`")
    variants = [(record, path) for record, path in places if record.method is not None]
    if not variants:
        raise FolderError(
            f"{out}: no record of a variant among its {len(places):,}, such as {places[0][0].run}, expected "
            "those of an experiment with `variants`; compare two predictions with `bertvision compare`"
        )
    path_of = {id(record): path for record, path in variants if record.task in TASKS}
    if not path_of:
        found = ", ".join(sorted({record.task for record, _ in variants}))
        raise FolderError(
            f"{out}: records of {found}, expected {' or '.join(TASKS)}: compare-methods compares answers to questions; "
            "compare two predictions of any task with `bertvision compare`"
        )
    chosen = choose(record for record, _ in variants if record.task in TASKS)
    return [Shown(record, row, _predictions(record, path_of[id(record)])) for record, row in chosen]


def _predictions(record: RunRecord, path: Path) -> Path:
    """Find a record's predictions: records lie in OUT/records."""
    folder = folder_of_seed(path.parent.parent, record.seed, tuple(record.config["seeds"]), record.fraction)
    return folder.predictions(record.row)


def _check_rows(out: Path, shown: Sequence[Shown], there: Sequence[Shown], against: str) -> None:
    """Refuse a choice of rows, those with predictions among those shown, that leaves nothing to compare."""
    if not there:
        raise FolderError(
            f"{out}: records but no predictions beside them, expected {shown[0].answers}; give the folder that "
            "`bertvision run` wrote, or copy its predictions here"
        )
    rows = {each.row for each in there}
    missing = [each.answers for each in shown if each.row == against]
    if missing and against not in rows:
        raise FolderError(
            f"{out}: no predictions of {against!r}, expected {missing[0]}; rows that have them are {_names(there)}; "
            "copy its predictions here, or choose one of those with --against"
        )
    if len(rows) == 1:
        raise FolderError(
            f"{out}: only one row with predictions, {_names(there)}, expected two or more; run more variants into the "
            "same folder, or give the folder above if this is one variant's"
        )
    if against not in rows:
        methods = [each.record.method for each in shown if each.record.variant == against]
        called = [f"that variant's row is called {each}: --against {each}" for each in methods if each in rows]
        advice = called[0] if called else "choose one with --against"
        raise FolderError(f"{out}: no row {against!r}; its rows are {_names(there)}; {advice}")


def _names(shown: Iterable[Shown]) -> str:
    return ", ".join(dict.fromkeys(each.row for each in shown))


def _read_answered(shown: Iterable[Shown], gold: str, questions: Sequence[Question]) -> list[ScoredVariant]:
    """Read the answers of all rows."""
    found: dict[Key, ScoredVariant] = {}
    sweeps: dict[tuple[Key, int], Sweep] = {}
    for record, row, place in shown:
        folder = read_prediction_folder(place, with_candidates=False)
        _check_covered(record, folder, gold, questions)
        key = (record.experiment, record.fraction, row)
        scored = score_answers(str(place), questions, folder.answers)
        found.setdefault(key, ScoredVariant(*key, {}, {})).worths[record.seed] = 100 * scored.worth("f1", questions)
        if folder.best_spans is not None and folder.null_odds is not None:
            sweeps[key, record.seed] = build_sweep(questions, folder.best_spans, folder.null_odds)
    bests = resample_best_f1(list(sweeps.values())) if sweeps else ()  # all at once, for they share their resamples
    for (key, seed), best in zip(sweeps, bests, strict=True):
        found[key].bests[seed] = best
    return list(found.values())


def _check_covered(record: RunRecord, folder: PredictionFolder, gold: str, questions: Sequence[Question]) -> None:
    if odd := folder.answers.keys() ^ {question.id for question in questions}:
        raise DataError(
            f"{folder.path}: its {len(folder.answers):,} answers are not to the {len(questions):,} questions of "
            f"{gold}, such as {min(odd)!r}; give the file that its record was scored on: --data "
            f"{record.data['dev'].name}"
        )


def _compare(row: ScoredVariant, answered: Sequence[ScoredVariant], against: str) -> Iterator[DifferenceRecord]:
    for other in answered:
        is_other = other.row == against != row.row
        seeds = sorted(row.worths.keys() & other.worths.keys())
        if is_other and (other.experiment, other.fraction) == (row.experiment, row.fraction) and seeds:
            apart = _mean(row.worths, seeds) - _mean(other.worths, seeds)
            low, high, p_value = paired_bootstrap(apart, np.arange(len(apart)))
            yield DifferenceRecord(
                experiment=row.experiment,
                row=row.row,
                fraction=row.fraction,
                against=against,
                seeds=tuple(seeds),
                difference=float(apart.mean()),
                low=low,
                high=high,
                p_value=p_value,
                by_seed=tuple(float((row.worths[seed] - other.worths[seed]).mean()) for seed in seeds),
                best=_compare_best(row, other, seeds),
            )


def _compare_best(row: ScoredVariant, other: ScoredVariant, seeds: Sequence[int]) -> Apart | None:
    """Compare best F1; None where a seed of either has none, so that both comparisons are of the same seeds."""
    if not row.bests.keys() & other.bests.keys() >= set(seeds):
        return None
    apart = _mean(row.bests, seeds) - _mean(other.bests, seeds)
    low, high, p_value = interval_of(apart[1:])
    by_seed = tuple(float(row.bests[seed][0] - other.bests[seed][0]) for seed in seeds)
    return Apart(difference=float(apart[0]), low=low, high=high, p_value=p_value, by_seed=by_seed)


def _mean(values: Mapping[int, Floats], seeds: Sequence[int]) -> Floats:
    mean: Floats = np.mean([values[seed] for seed in seeds], axis=0)
    return mean


def _heading(each: DifferenceRecord) -> str:
    seeds = ", ".join(map(str, each.seeds))
    many = "seeds" if len(each.seeds) > 1 else "seed"
    return f"{each.experiment}, fraction {fraction_name(each.fraction)}, {many} {seeds}, less {each.against}"


def _cells(each: DifferenceRecord) -> tuple[Cell, ...]:
    best: tuple[Cell, ...] = ("", "") if each.best is None else _apart_cells(each.best)
    return (each.row, *_apart_cells(each), *best)


def _apart_cells(each: Apart) -> tuple[Cell, ...]:
    return (Number(each.difference, "+.2f"), f"{each.low:+.2f}..{each.high:+.2f}")
