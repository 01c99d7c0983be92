"""The course of a training: loss, held-out score and rate over steps, for records, a file of lines and callbacks."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil, isfinite
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import torch

from bertvision.files import append_text, write_text
from bertvision.records import TrainingPoint
from bertvision.settings import Settings
from bertvision.training.loop import STEPS_BETWEEN_LOOKS, Group, Step

MAX_POINTS = 200  # of a record: as many as a figure shows


class TrainingLine(TrainingPoint):
    """A point with what it is of: a line of `training.jsonl`, and what callbacks are given."""

    model: str  # `encoder`, or a head's name
    fraction: float | None  # of the encoder that the head learns on; None for the encoder itself, and one as given
    seed: int


@runtime_checkable
class Callback(Protocol):
    """Whoever wants to see the course of a training, such as an experiment tracker."""

    def on_point(self, point: TrainingLine) -> None:
        """See a point: some of the steps, and every evaluation."""
        ...


class TrainingLog:
    """Hands points on to callbacks and, where there is a path, to a file with a line for each."""

    def __init__(
        self,
        path: Path | None = None,
        seed: int = 0,
        fraction: float | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self._path, self._callbacks = path, callbacks
        self._seed, self._fraction = seed, fraction

    def begin(self, points: Mapping[str, Sequence[TrainingPoint]]) -> None:
        """Let the file hold just these points of the rows, as a training that starts or goes on has them."""
        if self._path is None:
            return
        lines = [line for line in _read(self._path) if not (line.model in points and line.fraction == self._fraction)]
        lines += sorted((self._line(row, each) for row in points for each in points[row]), key=lambda line: line.step)
        if lines or self._path.exists():
            write_text(self._path, "".join(f"{line.model_dump_json()}\n" for line in lines))

    def add(self, points: Mapping[str, TrainingPoint]) -> None:
        """Hand on one point of each row."""
        lines = [self._line(row, point) for row, point in points.items()]
        if self._path is not None:
            append_text(self._path, "".join(f"{line.model_dump_json()}\n" for line in lines))
        for callback in self._callbacks:
            for line in lines:
                callback.on_point(line)

    def _line(self, row: str, point: TrainingPoint) -> TrainingLine:
        return TrainingLine(model=row, fraction=self._fraction, seed=self._seed, **point.model_dump())


UNLOGGED = TrainingLog()


class _Seen(NamedTuple):
    number: int
    seconds: float
    losses: dict[str, float | None]  # None where not finite


class History:
    """Makes points of steps: of every so-many-th one, and of those that are evaluated.

    Losses stay on the device until the host looks at several at once, so that it does not wait after every step.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        num_steps: int,
        epoch_of: Callable[[int], float],
        log: TrainingLog = UNLOGGED,
        saved: Settings | None = None,
    ) -> None:
        """Begin a history, or go on with what `state` gave."""
        saved = saved or {"points": {}, "since": []}
        self._schedules = {learner.name: learner.schedule for group in groups for learner in group.learners}
        self._every, self._epoch_of, self._log = max(1, ceil(num_steps / MAX_POINTS)), epoch_of, log
        self._unread: list[tuple[int, float, Step]] = []
        self._since = [_Seen(*each) for each in saved["since"]]  # since the last point, the last step always among them
        self.points = {
            name: [TrainingPoint(**each) for each in saved["points"].get(name, [])] for name in self._schedules
        }
        log.begin(self.points)

    def add(self, step: Step, number: int, seconds: float) -> None:
        """Note a step, the `number`-th of the whole training, after so many seconds of it."""
        if len(self._unread) >= STEPS_BETWEEN_LOOKS:
            self._look()
            self._make_points()
        self._unread.append((number, seconds, step))

    def mark(self, scores: Mapping[str, float | None] | None = None, seconds: float | None = None) -> None:
        """Make a point of the last step, with the learners' scores where they were evaluated after it.

        `seconds` are those in which a device has ended it, where the caller has waited for that.
        """
        self._look()
        last = self._since.pop() if self._since else None
        last = last if last is None or seconds is None else last._replace(seconds=seconds)
        self._make_points()
        if last is not None:
            self._since.append(last)
            self._make_point(scores or {})

    def forget(self, names: Collection[str]) -> None:
        """Make a last point of all learners, and no further ones of some."""
        self.mark()
        self._schedules = {name: each for name, each in self._schedules.items() if name not in names}

    def state(self) -> Settings:
        """Return what a training that is stopped here needs to go on."""
        self._look()
        points = {name: [point.model_dump() for point in points] for name, points in self.points.items()}
        return {"points": points, "since": [list(each) for each in self._since]}

    def _look(self) -> None:
        """Read the losses of the last steps; the host waits for the device here."""
        losses = _read_losses([step for _, _, step in self._unread])
        for (number, seconds, _), own in zip(self._unread, losses, strict=True):
            self._since.append(_Seen(number, seconds, own))
        self._unread.clear()

    def _make_points(self) -> None:
        seen, self._since = self._since, []
        for each in seen:
            self._since.append(each)
            if each.number % self._every == 0:
                self._make_point({})

    def _make_point(self, scores: Mapping[str, float | None]) -> None:
        """Make a point of the steps since the last one."""
        steps, self._since = self._since, []
        number, seconds, _ = steps[-1]
        made = {}
        for name, schedule in self._schedules.items():
            losses = [loss for each in steps if (loss := each.losses[name]) is not None]
            made[name] = TrainingPoint(
                step=number,
                epoch=round(self._epoch_of(number), 4),
                loss=sum(losses) / len(losses) if losses else None,
                score=scores.get(name),
                lr=schedule.rate_of(number),
                seconds=round(seconds, 3),
            )
            self.points[name].append(made[name])
        self._log.add(made)


def thinned(points: Sequence[TrainingPoint]) -> list[TrainingPoint]:
    """Return at most MAX_POINTS points, each the last of several neighbours with the mean of their losses.

    Where one of the neighbours was evaluated, the last of these it is.
    """
    size = ceil(len(points) / MAX_POINTS)
    return [_merged(points[first : first + size]) for first in range(0, len(points), size)] if size > 1 else [*points]


def _merged(points: Sequence[TrainingPoint]) -> TrainingPoint:
    losses = [point.loss for point in points if point.loss is not None]
    last = next((point for point in reversed(points) if point.score is not None), points[-1])
    return last.model_copy(update={"loss": sum(losses) / len(losses) if losses else None})


def _read_losses(steps: Sequence[Step]) -> list[dict[str, float | None]]:
    """Return every learner's loss by step, in one reading for each group."""
    found: list[dict[str, float | None]] = [{} for _ in steps]
    for place, (group, _) in enumerate(steps[0].results if steps else ()):
        names = [learner.name for learner in group.learners]
        read = torch.stack([step.results[place][1] for step in steps]).tolist()
        for own, losses in zip(found, read, strict=True):
            own.update({name: loss if isfinite(loss) else None for name, loss in zip(names, losses, strict=True)})
    return found


def _read(path: Path) -> list[TrainingLine]:
    """Read the lines of a file; a kill may have left half of the last one."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(TrainingLine(**json.loads(text)))
        except ValueError:
            continue
    return lines
