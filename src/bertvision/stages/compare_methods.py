"""OUT/differences.json: how far methods lie from one of them, question by question; needs no torch."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertvision.analysis.paired import Floats, paired_bootstrap
from bertvision.analysis.scored import score_answers
from bertvision.difference_record import Difference, write_differences
from bertvision.errors import FolderError
from bertvision.methods import choose, group_of
from bertvision.predictions.files import read_answers
from bertvision.records import RunRecord, fraction_name, read_record, record_paths
from bertvision.run_folder import folder_of_seed
from bertvision.tasks.squad import read_squad
from bertvision.tasks.task import Question

COLUMNS = ("model", "fraction", "seeds", "F1", "95% interval", "p")


class Answered(NamedTuple):
    """A row at a fraction, with the F1 of each of its answers in percent, by seed."""

    experiment: str
    fraction: float | None
    row: str
    worths: dict[int, Floats]


class Differences(NamedTuple):
    """What was found, and where it was written."""

    differences: list[Difference]
    path: Path

    def as_rows(self) -> list[tuple[str, ...]]:
        """Write every comparison as cells."""
        return [_cells(each) for each in self.differences]


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
    found: dict[tuple[str, float | None, str], Answered] = {}
    for record, row in choose(record for record, _ in places):
        place = _predictions(record, path_of[id(record)])
        if (place / "predictions.json").exists():
            key = (group_of(record), record.fraction, row)
            scored = score_answers(str(place), questions, read_answers(place))
            found.setdefault(key, Answered(*key, {})).worths[record.seed] = 100 * scored.worth("f1", questions)
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
            )


def _mean(worths: Mapping[int, Floats], seeds: Sequence[int]) -> Floats:
    mean: Floats = np.mean([worths[seed] for seed in seeds], axis=0)
    return mean


def _cells(each: Difference) -> tuple[str, ...]:
    interval = f"{each.low:+.2f} to {each.high:+.2f}"
    seeds = str(len(each.seeds))
    return (each.row, fraction_name(each.fraction), seeds, f"{each.difference:+.2f}", interval, f"{each.p_value:.4f}")
