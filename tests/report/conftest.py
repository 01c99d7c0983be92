"""Reports on records that no run made."""

from pathlib import Path

import pytest

from bertvision.records import Curves, RunRecord, TrainingPoint
from bertvision.report.drawing import draw
from bertvision.report.gallery import GALLERY
from bertvision.report.page import write_report
from bertvision.report.pictures import Drawing

CURVES = Curves(
    threshold=[(-6.0, 40.0, 42.0), (-2.0, 47.0, 51.0), (0.0, 44.0, 48.0), (5.0, 30.0, 36.0)],
    reliability={
        "before": [(0.05, 0.0, 0), (0.45, 0.3, 20), (0.75, 0.5, 30), (0.95, 0.7, 50)],
        "after": [(0.35, 0.3, 30), (0.55, 0.5, 30), (0.75, 0.75, 40)],
    },
    risk_coverage=[(0.1, 0.05), (0.5, 0.2), (1.0, 0.4)],
)
CALIBRATED = {
    "tuned_exact": 46.0,
    "tuned_f1": 50.0,
    "tuned_threshold": -1.5,
    "tuned_below_best_f1": 1.0,
    "best_exact": 47.0,
    "best_f1": 51.0,
    "best_f1_thresh": -2.0,
    "temperature": 1.62,
    "ece": 0.142,
    "ece_calibrated": 0.0214,
    "risk_coverage_area": 0.179,
}
LEARNED = {
    "training": [
        TrainingPoint(step=10, epoch=0.5, loss=2.0, score=None, lr=1e-3, seconds=1.0),
        TrainingPoint(step=20, epoch=1.0, loss=1.0, score=40.0, lr=5e-4, seconds=2.0),
    ],
    "scatter": [(1.0, 1.5), (2.0, 1.5), (3.0, 3.5)],
}


@pytest.fixture(scope="session")
def rich_records(records: list[RunRecord]) -> list[RunRecord]:
    """The same with everything that a figure or table can need: curves, question types, and half of the data."""
    types = {"HasAns_f1": 61.0, "NoAns_f1": 33.0}
    whole = [
        record.model_copy(update={"scores": {**record.scores, **CALIBRATED, **types}, "curves": CURVES, **LEARNED})
        for record in records
    ]
    config = records[0].config
    half = {**config, "heads": {**config["heads"], "data_fraction": 0.5}}
    return whole + [record.model_copy(update={"config": half}) for record in whole]


@pytest.fixture(scope="session")
def written(records: list[RunRecord], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report on `records`, to be read only."""
    return write_report(records, tmp_path_factory.mktemp("report")).parent


@pytest.fixture(scope="session")
def rich_written(rich_records: list[RunRecord], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report on `rich_records`, their names full of marks, to be read only."""
    renamed = [record.model_copy(update={"model": f"{record.model}_{{%&"}) for record in rich_records]
    return write_report(renamed, tmp_path_factory.mktemp("rich")).parent


@pytest.fixture(scope="session")
def drawings(rich_records: list[RunRecord]) -> dict[str, Drawing]:
    """Every figure of `rich_records`, drawn once."""
    found = {picture.name: draw(picture.figure, rich_records) for picture in GALLERY}
    return {name: drawing for name, drawing in found.items() if drawing is not None}
