"""Records that no run made."""

from collections.abc import Callable
from typing import Any

import pytest

from bertvision.records import DataFile, Parameters, Provenance, RunRecord, Seconds

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
