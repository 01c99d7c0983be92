"""Paired comparisons of an experiment's rows -> a table of all of them, seed by seed too."""

from collections.abc import Sequence

from bertvision.records import Apart, DifferenceRecord, RunRecord, fraction_name
from bertvision.report.renderers import Alignment, Captioned, Table
from bertvision.report.results import table_rows

# Seeds are told apart because a bootstrap of questions cannot know what another training would have answered.
NOTE = (
    "Intervals are the middle 95% over resampled questions, paired, of these very trainings: with other seeds the same "
    "methods may lie further apart, as the columns “by seed” show. “Best” is at the threshold for “no answer” that "
    "suits each row best, chosen anew in every resample."
)
HEADER = ("fraction", "model", "F1 at 0", "95% interval", "by seed", "F1 best", "95% interval", "by seed")


def difference_tables(records: Sequence[RunRecord], differences: Sequence[DifferenceRecord]) -> list[Captioned]:
    """Lay out how far one experiment's rows lie from each row that they were compared with."""
    own = [each for each in differences if each.experiment == records[0].experiment]
    place_of = {(row.fraction, row.name): place for place, row in enumerate(table_rows(records))}
    shown = sorted((each for each in own if _key(each) in place_of), key=lambda each: place_of[_key(each)])
    return [
        Captioned(
            f"Question by question, less {against}", _table([each for each in shown if each.against == against]), NOTE
        )
        for against in dict.fromkeys(each.against for each in shown)
    ]


def _key(each: DifferenceRecord) -> tuple[float | None, str]:
    return (each.fraction, each.row)


def _table(differences: Sequence[DifferenceRecord]) -> Table:
    number: Alignment = "right"
    rows = tuple((fraction_name(each.fraction), each.row, *_cells(each), *_cells(each.best)) for each in differences)
    return Table(HEADER, ("left", "left", *[number] * (len(HEADER) - 2)), rows)


def _cells(each: Apart | None) -> tuple[str, str, str]:
    if each is None:
        return ("", "", "")
    by_seed = ", ".join(f"{difference:+.2f}" for difference in each.by_seed)
    return (f"{each.difference:+.2f}", f"{each.low:+.2f} to {each.high:+.2f}", by_seed)
