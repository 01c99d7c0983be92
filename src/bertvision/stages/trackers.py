"""Experiment trackers that see the course of training, each where its package is installed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from bertvision.errors import SettingsError
from bertvision.experiment import Experiment, Tracker
from bertvision.training.history import Callback, TrainingLine

PROJECT = "bertvision"


class TensorBoard:
    """Writes OUT/tensorboard."""

    def __init__(self, module: Any, experiment: Experiment, out: Path) -> None:  # noqa: ANN401 (torch.utils.tensorboard)
        self._writer = module.SummaryWriter(str(out / "tensorboard"))

    def on_point(self, point: TrainingLine) -> None:
        """Write a point's values under the names of their curves."""
        for name, value in _values(point).items():
            self._writer.add_scalar(name, value, point.step)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


class TrackioRun:
    """A run of trackio's project `bertvision`."""

    def __init__(self, module: Any, experiment: Experiment, out: Path) -> None:  # noqa: ANN401 (trackio)
        self._run = module.init(project=PROJECT, name=experiment.title, config=experiment.model_dump(mode="json"))

    def on_point(self, point: TrainingLine) -> None:
        """Log a point's values at its step."""
        self._run.log(_values(point), step=point.step)

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()


class WandbRun:
    """A run of Weights & Biases' project `bertvision`."""

    def __init__(self, module: Any, experiment: Experiment, out: Path) -> None:  # noqa: ANN401 (wandb)
        config = experiment.model_dump(mode="json")
        self._run = module.init(project=PROJECT, name=experiment.title, config=config, dir=str(out))

    def on_point(self, point: TrainingLine) -> None:
        """Log a point's values over a step of their own: wandb's counts all calls, and never back."""
        curve = _curve(point)
        self._run.define_metric(f"{curve}/*", step_metric=f"{curve}/step")
        self._run.log({**_values(point), f"{curve}/step": point.step})

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()


# By the word of the setting: the module that is imported, and what is made of it. The word is the package's name.
TRACKERS: Mapping[Tracker, tuple[str, type[TensorBoard] | type[TrackioRun] | type[WandbRun]]] = {
    "tensorboard": ("torch.utils.tensorboard", TensorBoard),
    "trackio": ("trackio", TrackioRun),
    "wandb": ("wandb", WandbRun),
}


@contextmanager
def tracking(experiment: Experiment, out: Path) -> Iterator[Sequence[Callback]]:
    """Open the trackers that an experiment reports to, or say what to install; they are closed at the end."""
    modules = [_load(name) for name in experiment.report_to]
    with ExitStack() as closing:
        opened = []
        for name, module in zip(experiment.report_to, modules, strict=True):
            tracker = TRACKERS[name][1](module, experiment, out)
            closing.callback(tracker.close)
            opened.append(tracker)
        yield opened


def _load(name: Tracker) -> Any:  # noqa: ANN401 (a module)
    try:
        return import_module(TRACKERS[name][0])
    except ImportError:
        raise SettingsError(f"report_to: {name} is not installed: pip install {name}") from None


def _curve(point: TrainingLine) -> str:
    fraction = "" if point.fraction is None else f"-{point.fraction:g}"
    return f"seed{point.seed}/{point.model}{fraction}"


def _values(point: TrainingLine) -> dict[str, float]:
    values = {name: getattr(point, name) for name in ("loss", "score", "lr")}
    return {f"{_curve(point)}/{name}": value for name, value in values.items() if value is not None}
