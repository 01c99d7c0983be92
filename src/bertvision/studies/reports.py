"""A report as the command line writes it: the tables of every experiment, and those of the papers."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from bertvision.records import CostRecord, DifferenceRecord, MistakesRecord, RunRecord
from bertvision.report import page
from bertvision.report.answer_tables import confusion_tables
from bertvision.report.chapters import Contents
from bertvision.report.rates import rate_tables
from bertvision.report.score_tables import difference_tables, score_tables
from bertvision.studies.efficiency import cost_tables
from bertvision.studies.glue import glue_chapters
from bertvision.studies.hulburd import hulburd_tables

PAPERS = Contents(
    tables=(score_tables, confusion_tables, hulburd_tables, difference_tables, cost_tables, rate_tables),
    overviews=(glue_chapters,),
)


def write_report(
    records: Iterable[RunRecord],
    folder: str | Path,
    costs: Sequence[CostRecord] = (),
    differences: Sequence[DifferenceRecord] = (),
    mistakes: Sequence[MistakesRecord] = (),
) -> Path:
    """Write `report.html`, `report.md`, `tables.tex` and figures into a folder, and return the page.

    `costs` and `differences` are what `bertvision costs` and `compare-methods` left in a run folder; `mistakes` are
    examples to read, which lie with its predictions (`bertvision.records.read_mistakes`).
    """
    return page.write_report(records, Path(folder), costs, differences, PAPERS, mistakes)
