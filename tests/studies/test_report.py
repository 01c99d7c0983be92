from pathlib import Path

import pytest

import bertvision
from bertvision.records import read_differences, read_records
from bertvision.report.chapters import PLAIN
from studies.cost_records import read_costs
from studies.report import PAPERS, write_report


def test_the_papers_add_to_the_tables_of_every_report():
    assert [part for part in PAPERS.tables if part in PLAIN.tables] == list(PLAIN.tables)
    assert len(PAPERS.tables) > len(PLAIN.tables)
    assert bertvision.write_report is write_report


def test_glue_stands_before_its_tasks_in_every_format(tmp_path, make_task_records):
    write_report(make_task_records("rte", {"accuracy": 60.0}) + make_task_records("cola", {"matthews": 40.0}), tmp_path)
    for name in ("report.html", "report.md", "tables.tex"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert 0 < text.index("average of 2 without WNLI") < text.index("Scores on cola")


def test_a_report_says_why_there_is_no_table_of_glue(tmp_path, make_task_records):
    records = make_task_records("rte", {"accuracy": 60.0}) + make_task_records("cola", {"matthews": 40.0})
    write_report([*records, *make_task_records("cola", {"matthews": 30.0}, experiment="again")], tmp_path)
    for name in ("report.html", "report.md"):
        assert "No table of GLUE: cola has records of 2" in (tmp_path / name).read_text(encoding="utf-8")


RESULTS = Path(__file__).parents[2] / "results"
REPORTS = sorted(path.parent.relative_to(RESULTS).as_posix() for path in RESULTS.glob("**/report.md"))


def test_the_reports_of_all_tasks_are_committed():
    assert len(REPORTS) > 8


@pytest.mark.parametrize("name", REPORTS)
def test_committed_reports_are_what_make_report_writes(name, tmp_path):
    folder = RESULTS / name
    write_report(read_records(folder), tmp_path, read_costs(folder), read_differences(folder))
    for each in ("report.md", "tables.tex"):
        assert (tmp_path / each).read_text(encoding="utf-8") == (folder / each).read_text(encoding="utf-8"), (
            "make report"
        )
