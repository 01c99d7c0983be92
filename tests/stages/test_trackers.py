"""Trackers: what they are told, and what is said where one is not installed. No tracker is needed for these tests."""

import sys
from types import SimpleNamespace

import pytest

from bertvision.errors import SettingsError
from bertvision.experiment import build_experiment
from bertvision.stages.trackers import TRACKERS, tracking
from bertvision.training.history import TrainingLine

POINT = {"epoch": 0.5, "loss": 0.7, "score": None, "lr": 1e-3, "seconds": 1.0, "seed": 2}
LINES = [
    TrainingLine(step=3, model="encoder", fraction=None, **POINT),
    TrainingLine(step=1, model="last_linear", fraction=0.5, **{**POINT, "score": 80.0}),
]


def told_through(name, module, monkeypatch, tmp_path):
    """Install a stand-in for a tracker's module, and hand two points on."""
    monkeypatch.setitem(sys.modules, TRACKERS[name][0], module)
    with tracking(build_experiment({"name": "own", "report_to": [name]}), tmp_path) as callbacks:
        for line in LINES:
            callbacks[0].on_point(line)


def test_tensorboard_has_a_curve_for_every_row_and_value(monkeypatch, tmp_path):
    told = []

    class Writer:
        def __init__(self, folder):
            told.append(folder)

        def add_scalar(self, name, value, step):
            told.append((name, value, step))

        def close(self):
            told.append("closed")

    told_through("tensorboard", SimpleNamespace(SummaryWriter=Writer), monkeypatch, tmp_path)
    assert told == [
        str(tmp_path / "tensorboard"),
        ("seed2/encoder/loss", 0.7, 3),
        ("seed2/encoder/lr", 1e-3, 3),
        ("seed2/last_linear-0.5/loss", 0.7, 1),
        ("seed2/last_linear-0.5/score", 80.0, 1),
        ("seed2/last_linear-0.5/lr", 1e-3, 1),
        "closed",
    ]


class Run:
    """A run of wandb or trackio that notes what it is told."""

    def __init__(self, **given):
        self.given, self.logged, self.metrics, self.is_finished = given, [], [], False

    def define_metric(self, name, step_metric):
        self.metrics.append((name, step_metric))

    def log(self, values, step=None):
        self.logged.append((values, step))

    def finish(self):
        self.is_finished = True


def run_of(name, monkeypatch, tmp_path):
    runs = []
    module = SimpleNamespace(init=lambda **given: runs.append(Run(**given)) or runs[-1])
    told_through(name, module, monkeypatch, tmp_path)
    (made,) = runs
    assert (made.given["project"], made.given["name"], made.is_finished) == ("bertvision", "own", True)
    assert made.given["config"]["task"] == "squad2"
    return made


def test_trackio_is_told_values_at_their_step(monkeypatch, tmp_path):
    made = run_of("trackio", monkeypatch, tmp_path)
    assert made.logged[0] == ({"seed2/encoder/loss": 0.7, "seed2/encoder/lr": 1e-3}, 3)


def test_wandb_has_a_step_for_every_curve_because_its_own_never_goes_back(monkeypatch, tmp_path):
    made = run_of("wandb", monkeypatch, tmp_path)
    assert made.metrics[0] == ("seed2/encoder/*", "seed2/encoder/step")
    assert made.logged[0] == ({"seed2/encoder/loss": 0.7, "seed2/encoder/lr": 1e-3, "seed2/encoder/step": 3}, None)


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_that_is_not_installed_is_named_with_what_to_install(name, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, TRACKERS[name][0], None)  # importing it is an ImportError
    with (
        pytest.raises(SettingsError, match=f"^report_to: {name} is not installed: pip install {name}$"),
        tracking(build_experiment({"report_to": [name]}), tmp_path),
    ):
        pass


def test_nobody_is_told_unless_asked_for(tmp_path):
    with tracking(build_experiment({}), tmp_path) as callbacks:
        assert list(callbacks) == []
