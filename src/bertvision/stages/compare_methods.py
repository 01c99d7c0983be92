"""OUT/differences.json: how far methods lie from one of them, question by question; needs no torch."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertvision.analysis.best_threshold import Sweep, build_sweep, resample_best_f1
from bertvision.analysis.paired import Floats, interval_of, paired_bootstrap
from bertvision.analysis.scored import score_answers
from bertvision.difference_record import BestDifference, Difference, write_differences
from bertvision.errors import FolderError
from bertvision.methods import choose, group_of
from bertvision.predictions.files import read_prediction_folder
from bertvision.records import RunRecord, fraction_name, read_record, record_paths
from bertvision.run_folder import folder_of_seed
from bertvision.tasks.squad import read_squad
from bertvision.tasks.task import Question

COLUMNS = ("model", "F1", "95% interval")
BEST_COLUMNS = ("best", "95% interval")
Key = tuple[str, float | None, str]  # an experiment, a fraction, and the name of a row


class Answered(NamedTuple):
    """A row at a fraction, with what its answers are worth in percent, by seed."""

    experiment: str
    fraction: float | None
    row: str
    worths: dict[int, Floats]  # the F1 of each answer
    bests: dict[int, Floats]  # the best F1 of all questions, then of resamples, where the files for it are there


class Differences(NamedTuple):
    """What was found, and where it was written."""

    differences: list[Difference]
    path: Path

    @property
    def header(self) -> tuple[str, ...]:
        """Name the columns; those of the best thresholds only where a comparison has them."""
        return (*COLUMNS, *BEST_COLUMNS) if any(each.best for each in self.differences) else COLUMNS

    def as_rows(self) -> list[tuple[str, ...]]:
        """Write every comparison as cells, below a heading of what they share, which keeps lines short."""
        width, rows = len(self.header), []
        for heading, group in groupby(sorted(self.differences, key=_heading), key=_heading):
            rows += [(heading,), *(_cells(each)[:width] for each in group)]
        return rows


def compare_folder(out: Path, gold: str, against: str) -> Differences:
    """Compare every row that a report of a run folder shows with one of them at the same fraction."""
    questions = read_squad(gold, answers="texts", hub_split="validation").examples
    answered = _read_answered(out, questions)
    differences = [each for row in answered for each in _compare(row, answered, against)]
    if not differences:
        known = ", ".join(dict.fromkeys(each.row for each in answered)) or "none with predictions"
        raise FolderError(
            f"{out}: nothing to compare with {against!r}; its rows are {known}; choose one with --against"
        )
    return Differences(differences, write_differences(out, differences))


def _read_answered(out: Path, questions: Sequence[Question]) -> list[Answered]:
    """Read the answers of all rows whose predictions are there."""
    places = [(read_record(path), path) for path in record_paths(out)]
    path_of = {id(record): path for record, path in places}
    found: dict[Key, Answered] = {}
    sweeps: dict[tuple[Key, int], Sweep] = {}
    for record, row in choose(record for record, _ in places):
        place = _predictions(record, path_of[id(record)])
        if (place / "predictions.json").exists():
            folder = read_prediction_folder(place, with_candidates=False)
            key = (group_of(record), record.fraction, row)
            scored = score_answers(str(place), questions, folder.answers)
            found.setdefault(key, Answered(*key, {}, {})).worths[record.seed] = 100 * scored.worth("f1", questions)
            if folder.best_spans is not None and folder.null_odds is not None:
                sweeps[key, record.seed] = build_sweep(questions, folder.best_spans, folder.null_odds)
    bests = resample_best_f1(list(sweeps.values())) if sweeps else ()  # all at once, for they share their resamples
    for (key, seed), best in zip(sweeps, bests, strict=True):
        found[key].bests[seed] = best
    return list(found.values())


def _predictions(record: RunRecord, path: Path) -> Path:
    """Find a record's predictions: records lie in OUT/records."""
    folder = folder_of_seed(path.parent.parent, record.seed, tuple(record.config["seeds"]))
    return folder.predictions(record.fraction, record.row)


def _compare(row: Answered, answered: Sequence[Answered], against: str) -> Iterator[Difference]:
    for other in answered:
        is_other = other.row == against != row.row
        seeds = sorted(row.worths.keys() & other.worths.keys())
        if is_other and (other.experiment, other.fraction) == (row.experiment, row.fraction) and seeds:
            apart = _mean(row.worths, seeds) - _mean(other.worths, seeds)
            low, high, p_value = paired_bootstrap(apart, np.arange(len(apart)))
            yield Difference(
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


def _compare_best(row: Answered, other: Answered, seeds: Sequence[int]) -> BestDifference | None:
    """Compare best F1; None where a seed of either has none, so that both comparisons are of the same seeds."""
    if not row.bests.keys() & other.bests.keys() >= set(seeds):
        return None
    apart = _mean(row.bests, seeds) - _mean(other.bests, seeds)
    low, high, p_value = interval_of(apart[1:])
    by_seed = tuple(float(row.bests[seed][0] - other.bests[seed][0]) for seed in seeds)
    return BestDifference(difference=float(apart[0]), low=low, high=high, p_value=p_value, by_seed=by_seed)


def _mean(values: Mapping[int, Floats], seeds: Sequence[int]) -> Floats:
    mean: Floats = np.mean([values[seed] for seed in seeds], axis=0)
    return mean


def _heading(each: Difference) -> str:
    seeds = ", ".join(map(str, each.seeds))
    many = "seeds" if len(each.seeds) > 1 else "seed"
    return f"{each.experiment}, fraction {fraction_name(each.fraction)}, {many} {seeds}, less {each.against}"


def _cells(each: Difference) -> tuple[str, ...]:
    best = ("", "") if each.best is None else _apart_cells(each.best)
    return (each.row, *_apart_cells(each), *best)


def _apart_cells(each: Difference | BestDifference) -> tuple[str, str]:
    return (f"{each.difference:+.2f}", f"{each.low:+.2f}..{each.high:+.2f}")
