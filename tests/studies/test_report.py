from pathlib import Path

import pytest

import bertvision
from bertvision.records import read_differences, read_records
from studies.report import report_study

RESULTS = Path(__file__).parents[2] / "results"
REPORTS = sorted(path.parent.relative_to(RESULTS).as_posix() for path in RESULTS.glob("**/report.md"))
OF_STUDIES = ("squad2/efficiency", "squad2/paper_batch")  # what `make report` draws by `python -m studies report`


def test_the_reports_of_all_tasks_are_committed():
    assert len(REPORTS) > 8


@pytest.mark.parametrize("name", REPORTS)
def test_committed_reports_are_what_make_report_writes(name, tmp_path):
    folder = RESULTS / name
    if name in OF_STUDIES:
        report_study(folder, tmp_path)
    else:
        bertvision.write_report(read_records(folder), tmp_path, read_differences(folder))
    written, committed = (place.joinpath("report.md").read_text(encoding="utf-8") for place in (tmp_path, folder))
    assert written == committed, "make report"


def test_a_study_of_tunings_has_the_papers_tables_and_costs_that_other_reports_lack(tmp_path):
    page = report_study(RESULTS / "squad2" / "efficiency", tmp_path / "study").page.with_name("report.md").read_text()
    plain = bertvision.write_report(read_records(RESULTS / "squad2" / "efficiency"), tmp_path / "plain")
    for title in (
        "Hulburd's table 1",
        "Hulburd's lost table",
        "Costs: heads on the frozen encoder",
        "that had NVIDIA H200 to itself",
    ):
        assert title in page
        assert title not in plain.with_name("report.md").read_text()
