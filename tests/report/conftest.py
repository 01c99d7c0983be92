"""Records that no run made."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertvision.records import Curves, DataFile, Efficiency, Inference, Parameters, Provenance, RunRecord, Seconds
from bertvision.report.drawing import Drawing, draw
from bertvision.report.gallery import GALLERY
from bertvision.report.page import write_report

MakeRecord = Callable[..., RunRecord]
CONFIG = {
    "name": "squad2_small",
    "task": "squad2",
    "encoder": {"name": "gte-small", "max_length": 384},
    "finetune": {"fractions": [0.1, 1.0], "optim": {"lr": 0.0001, "schedule": "linear"}, "batch": {"tokens": 8192}},
    "heads": {"train": [{"name": "learned_pooling"}, {"name": "last_linear"}], "epochs": 1, "report_epoch": 1},
    "seeds": [1, 2],
}


def invent_record(**changes: Any) -> RunRecord:
    """Invent a whole record; `changes` replace its fields."""
    fields: dict[str, Any] = {
        "experiment": "squad2_small",
        "task": "squad2",
        "row": "learned_pooling",
        "kind": "head",
        "fraction": 1.0,
        "seed": 1,
        "scores": {"exact": 53.6, "f1": 57.9, "best_f1": 65.7, "best_span_HasAns_f1": 80.2},
        "epochs": [],
        "parameters": Parameters(total=60_000, trainable=60_000, encoder=30_000_000),
        "seconds": Seconds(finetune=100.0, heads=20.0, predict=5.0),
        "schedule_horizon": None,
        "data": {"dev": DataFile(name="dev.json", sha256="ab" * 32, questions=11_873, dropped=0, windows=12_134)},
        "encoder_fingerprint": "cd" * 32,
        "config": CONFIG,
        "provenance": Provenance(
            commit="0123456789abcdef0123456789abcdef01234567",
            dirty=False,
            device="2 CPU cores",
            precision="float32",
            python="3.11.2",
            versions={"torch": "2.13.0"},
        ),
    }
    return RunRecord(**{**fields, **changes})


@pytest.fixture
def make_record() -> MakeRecord:
    """Give the inventor of records."""
    return invent_record


@pytest.fixture
def make_variant(make_record: MakeRecord) -> MakeRecord:
    """Give a function that invents a record of a variant."""

    def make(
        variant: str,
        row: str = "encoder",
        f1: float = 70.0,
        held_out: float | None = None,
        seed: int = 1,
        trainable: int = 1000,
        rate: float = 1e-4,
        fraction: float = 1.0,
        **config: Any,
    ) -> RunRecord:
        kind = "encoder" if row == "encoder" else "head"
        scores = {"exact": f1 - 3, "f1": f1, **({} if held_out is None else {"held_out_f1": held_out})}
        own = {"variant": variant, "finetune": {"lr": rate, **config.pop("finetune", {})}, **config}
        head = next((each for each in own.get("heads", {}).get("train", []) if each["name"] == row), {})
        return make_record(
            experiment="efficiency",
            variant=variant,
            method=variant.partition("-lr")[0],
            row=row,
            setting_of=row.partition("-lr")[0] if "-lr" in row else None,
            kind=kind,
            encoder_lr=rate,
            lr=head.get("lr") or (None if kind == "encoder" else 1e-3),
            weight_decay=head.get("weight_decay"),
            seed=seed,
            fraction=fraction,
            scores=scores,
            parameters=Parameters(total=3000, trainable=trainable, encoder=2000),
            config=own,
            efficiency=Efficiency(
                encoder_seconds=100.0,
                heads_seconds=0.0,
                data_seconds=5.0,
                peak_process_bytes=3_000_000_000,
                peak_device_bytes=None,
                joules=None,
                ship_bytes=8_000_000,
                inference=Inference(seconds=12.5, latency=0.004, operations=6e12, windows=2000),
            ),
        )

    return make


@pytest.fixture(scope="session")
def records() -> list[RunRecord]:
    """Two fractions of an encoder, a head that weighs three layers, a control and an ensemble, each with two seeds."""
    return [
        invent_record(
            row=row,
            kind=kind,
            fraction=fraction,
            seed=seed,
            scores={"exact": score + seed, "f1": score + 4 + seed, "best_f1": score + 12, "best_span_HasAns_f1": 80.0},
            layer_weights=[0.2, 0.3, 0.5] if row == "learned_pooling" else None,
        )
        for fraction in (0.1, 1.0)
        for seed in (1, 2)
        for row, kind, score in (
            ("encoder", "encoder", 40.0),
            ("learned_pooling", "head", 42.0),
            ("last_linear", "control", 41.0),
            ("encoder+learned_pooling", "ensemble", 43.0),
        )
    ]


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


@pytest.fixture(scope="session")
def rich_records(records: list[RunRecord]) -> list[RunRecord]:
    """The same with everything that a figure or table can need: curves, question types, and half of the data."""
    types = {"HasAns_f1": 61.0, "NoAns_f1": 33.0}
    whole = [
        record.model_copy(update={"scores": {**record.scores, **CALIBRATED, **types}, "curves": CURVES})
        for record in records
    ]
    half = {**CONFIG, "heads": {**CONFIG["heads"], "share": 0.5}}
    return whole + [record.model_copy(update={"config": half}) for record in whole]


def invent_task(task: str, scores: dict[str, float], **changes: Any) -> list[RunRecord]:
    """Invent an experiment on a task, with a majority baseline and two seeds of an encoder and a head."""
    nothing = Parameters(total=0, trainable=0, encoder=0)
    common = {"experiment": task, "task": task, **changes}
    return [
        invent_record(row="majority", kind="baseline", scores=scores, parameters=nothing, fraction=None, **common),
        *(
            invent_record(
                row=row, kind=kind, seed=seed, scores={key: value + seed for key, value in scores.items()}, **common
            )
            for row, kind in (("encoder", "encoder"), ("learned_pooling", "head"))
            for seed in (1, 2)
        ),
    ]


@pytest.fixture
def make_task() -> Callable[..., list[RunRecord]]:
    """Give the inventor of experiments on any task."""
    return invent_task


@pytest.fixture(scope="session")
def written(records: list[RunRecord], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report on `records`, to be read only."""
    return write_report(records, tmp_path_factory.mktemp("report")).parent


@pytest.fixture(scope="session")
def rich_written(rich_records: list[RunRecord], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report on `rich_records`, their names full of marks, to be read only."""
    renamed = [record.model_copy(update={"row": f"{record.row}_{{%&"}) for record in rich_records]
    return write_report(renamed, tmp_path_factory.mktemp("rich")).parent


@pytest.fixture(scope="session")
def drawings(rich_records: list[RunRecord]) -> dict[str, Drawing]:
    """Every figure of `rich_records`, drawn once."""
    found = {picture.name: draw(picture.figure, rich_records) for picture in GALLERY}
    return {name: drawing for name, drawing in found.items() if drawing is not None}
