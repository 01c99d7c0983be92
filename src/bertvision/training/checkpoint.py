"""Weights (safetensors, never pickle) together with what made them, and a training that can go on where it stopped.

Also the weights of its best evaluation, and when to stop waiting for better ones.
"""

import hashlib
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertvision.errors import FolderError
from bertvision.files import read_json, whole_file, whole_folder, write_json
from bertvision.manifest import check_manifest, write_manifest
from bertvision.records import TrainingPoint
from bertvision.settings import Settings
from bertvision.training.loop import Group, Learner

BEST = "best.safetensors"
COUNTERS = ("bad_steps", "bad_in_a_row", "diverged")  # what a group counts for each of its learners
STOPPING = [each for name in ("SIGINT", "SIGTERM", "SIGHUP") if (each := getattr(signal, name, None)) is not None]


def save_weights(path: Path, model: nn.Module) -> None:
    """Write a module's parameters and buffers."""
    save_tensors(path, model.state_dict())


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file."""
    with whole_file(path) as beside:
        beside.touch()
        usual = beside.stat().st_mode  # safetensors writes files that nobody else may read
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, beside)
        beside.chmod(usual)


def load_weights(path: Path, model: nn.Module) -> None:
    """Read what `save_weights` wrote into a module of the same shape."""
    try:
        model.load_state_dict(load_tensors(path))
    except RuntimeError as error:
        raise FolderError(f"{path}: weights of another model ({str(error).splitlines()[-1].strip()})") from None


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise FolderError(f"{path}: missing or damaged ({error}); delete its folder and run the stage again") from None


def fingerprint(model: nn.Module) -> str:
    """Hash a module's weights by name and value, whatever file they came from."""
    return fingerprint_tensors(model.state_dict())


def fingerprint_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Hash tensors by name and value."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        values = tensor.detach().to("cpu", torch.float32).contiguous()
        digest.update(f"{name}{tuple(values.shape)}".encode())
        digest.update(values.numpy().data)
    return digest.hexdigest()


def save_progress(
    folder: Path, groups: Sequence[Group], position: Settings, best: Mapping[str, Tensor] | None = None
) -> None:
    """Write all that a training needs to go on: weights, optimizers, schedules, randomness and its position.

    `best` are weights that it would rather end with than the last ones; `load_tensors` reads them from BEST.
    """
    with whole_folder(folder) as beside:
        for number, (_, _, learner) in enumerate(_each(groups)):
            save_weights(beside / f"{number}.model.safetensors", learner.model)
            save_tensors(beside / f"{number}.training.safetensors", _tensors(learner))
        plain = {learner.name: _plain(group, place) for group, place, learner in _each(groups)}
        write_json(beside / "position.json", {**position, "learners": plain})
        if best:
            save_tensors(beside / BEST, best)
        write_manifest(beside)


def load_progress(folder: Path, groups: Sequence[Group]) -> Settings | None:
    """Put learners back to where `save_progress` left them; None where nothing was saved."""
    if not (folder / "position.json").exists():
        return None
    check_manifest(folder)
    position: Settings = read_json(folder / "position.json")
    plain = position.pop("learners")
    if list(plain) != [learner.name for _, _, learner in _each(groups)]:
        raise FolderError(f"{folder}: saved by a training of {', '.join(plain)}; delete the folder and run again")
    for number, (group, place, learner) in enumerate(_each(groups)):
        load_weights(folder / f"{number}.model.safetensors", learner.model)
        _restore(learner, plain[learner.name], load_tensors(folder / f"{number}.training.safetensors"))
        for name in COUNTERS:
            getattr(group, name)[place] = plain[learner.name][name]
    return position


class HeldSignals:
    """Signals that ask the process to end, held back so that the step under way ends and is saved first.

    A second one acts at once, and so does any where nothing can be saved or nobody but Python's main thread could hold
    it. One that is ignored (nohup) stays so.
    """

    def __init__(self, saved: Path | None) -> None:
        self.came: int | None = None  # the signal that was held back
        self._saved, self._handlers = saved, dict[int, Any]()

    def __enter__(self) -> "HeldSignals":
        self.hold()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.let_go()
        if self.came is not None and kind is None:
            signal.raise_signal(self.came)

    def hold(self) -> None:
        """Hold signals back from now on."""
        if self._saved is not None and threading.current_thread() is threading.main_thread() and self.came is None:
            handlers = {number: signal.getsignal(number) for number in STOPPING}
            self._handlers = {n: own for n, own in handlers.items() if own not in (None, signal.SIG_IGN)}
            for number in self._handlers:
                signal.signal(number, self._note)

    def act(self) -> None:
        """Let the signal that came, if one did, act now that all is saved: Python's own raises KeyboardInterrupt."""
        if (number := self.came) is not None:
            self.came = None
            try:
                signal.raise_signal(number)
            except KeyboardInterrupt as stop:
                stop.add_note(f"progress is saved in {self._saved}, and the same run goes on from there")
                raise

    def let_go(self) -> None:
        """Let signals act as they would from now on."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.let_go()
        self.came = number


def _each(groups: Sequence[Group]) -> list[tuple[Group, int, Learner]]:
    return [(group, place, learner) for group in groups for place, learner in enumerate(group.learners)]


def _plain(group: Group, place: int) -> Settings:
    counts = {name: getattr(group, name)[place].item() for name in COUNTERS}
    return {"steps_taken": group.learners[place].schedule.taken, **counts}


def _tensors(learner: Learner) -> dict[str, Tensor]:
    state = learner.optimizer.state_dict()["state"]
    moments = {f"optimizer.{number}.{key}": value for number, each in state.items() for key, value in each.items()}
    draws = {f"random.{number}": value for number, value in enumerate(learner.stream.states)}
    return {**moments, **draws}


def _restore(learner: Learner, plain: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        place, _, rest = name.partition(".")
        if place == "optimizer":
            number, _, key = rest.partition(".")
            state.setdefault(int(number), {})[key] = tensor
    groups = learner.optimizer.state_dict()["param_groups"]
    learner.optimizer.load_state_dict({"state": state, "param_groups": groups})
    learner.schedule.go_to(plain["steps_taken"])
    learner.stream.states = [tensors[f"random.{number}"] for number in range(len(learner.stream.states))]


class BestWeights:
    """Keeps a model's weights in the host's memory whenever none before had a better score."""

    def __init__(
        self, model: nn.Module, points: Sequence[TrainingPoint] = (), saved: Path | None = None, *, is_asked: bool
    ) -> None:
        """Begin with none, or go on with those that `save_progress` left; without `is_asked` none are ever kept."""
        self._model, self._is_asked = model, is_asked
        self._scores = {point.step: point.score for point in points if point.score is not None}
        self.tensors: dict[str, Tensor] = {}
        if is_asked and saved is not None and (saved / BEST).exists():
            self.tensors = load_tensors(saved / BEST)

    @property
    def step(self) -> int | None:
        """Return the step that they are of; None where there are none."""
        return [*self._scores][best_of([*self._scores.values()])] if self.tensors else None

    def offer(self, step: int, score: float | None) -> None:
        """Keep the weights as they are now, if this is the best score."""
        if not self._is_asked or score is None:
            return
        self._scores[step] = score
        if best_of([*self._scores.values()]) == len(self._scores) - 1:
            self.tensors = {
                name: value.detach().to("cpu", copy=True) for name, value in self._model.state_dict().items()
            }

    def is_over(self, patience: int | None) -> bool:
        """Return whether so many evaluations in a row were no better."""
        scores = [*self._scores.values()]
        return patience is not None and bool(scores) and len(scores) - 1 - best_of(scores) >= patience

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within this the model has them, where there are any."""
        if not self.tensors:
            yield
            return
        last = {name: value.detach().clone() for name, value in self._model.state_dict().items()}
        self._model.load_state_dict(self.tensors)
        try:
            yield
        finally:
            self._model.load_state_dict(last)


def best_of(scores: Sequence[float | None]) -> int:
    """Return the place of the first best score; the last where nothing was scored."""
    known = [(score, -place) for place, score in enumerate(scores) if score is not None]
    return -max(known)[1] if known else len(scores) - 1
