"""A report of a study: every report's chapters, with the papers' tables and what each way of tuning costs."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bertvision import write_report
from bertvision.files import check_folder
from bertvision.records import RunRecord, read_differences, read_mistakes, read_records
from bertvision.report.chapters import Contents
from bertvision.report.page import CHAPTERS
from bertvision.report.results import Evidence
from bertvision.report.tables import confusion_tables, difference_tables, rate_tables, score_tables
from bertvision.tables import Table
from studies.cost_figures import study_pictures
from studies.cost_records import CostRecord, read_costs
from studies.costs import costs_note, with_costs
from studies.efficiency import cost_tables
from studies.hulburd import hulburd_tables


class StudyReport(NamedTuple):
    """The page of a report, and the records as it shows them: with costs that were measured in one run."""

    page: Path
    records: list[RunRecord]


def report_study(folder: str | Path, out: str | Path) -> StudyReport:
    """Write the report of the records, costs and differences below a folder."""
    folder, out = Path(folder), check_folder(Path(out))
    return write_study_report(read_records(folder), out, folder)


def write_study_report(records: Iterable[RunRecord], out: Path, folder: Path) -> StudyReport:
    """Write the report of records; costs, differences and examples to read are those below `folder`."""
    costs = read_costs(folder)
    shown = with_costs(records, costs)
    page = write_report(shown, out, read_differences(folder), read_mistakes(folder), chapters=study_chapters(costs))
    return StudyReport(page, shown)


def study_chapters(costs: Sequence[CostRecord] = ()) -> Contents:
    """Return what a study's chapters hold; notes say how these costs were measured."""
    return Contents(
        tables=(
            partial(_noted_scores, costs=costs),
            confusion_tables,
            partial(hulburd_tables, costs=costs),
            difference_tables,
            partial(cost_tables, costs=costs),
            rate_tables,
        ),
        overviews=CHAPTERS.overviews,
        pictures=study_pictures(),
    )


def _noted_scores(evidence: Evidence, costs: Sequence[CostRecord]) -> list[Table]:
    """Lay out the scores; the first table, whose column of seconds is of these costs, says how they were measured."""
    first, *others = score_tables(evidence)
    return [replace(first, note=costs_note(evidence.records, costs)), *others]
