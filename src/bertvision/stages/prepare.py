"""An experiment's data, read and checked: what is learned from, what is held out of it, and what is scored.

No torch in here: a command reads the data before it imports the other steps, so that a wrong file is refused at once.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from bertvision.data.example import DataConfig, Split
from bertvision.data.near_miss import with_near_misses
from bertvision.data.sources import left_out, parse_source
from bertvision.data.split import check_apart, hold_out
from bertvision.data.tables import finite_number
from bertvision.errors import DataError, SettingsError
from bertvision.experiment import Experiment
from bertvision.files import exists
from bertvision.progress import SILENT, Progress
from bertvision.scoring.bootstrap import half_right
from bertvision.tables import counted
from bertvision.tasks import TASKS, Task, read_labelled, read_task

DEFAULT_HELD_OUT = 0.1  # share of train that a search scores trials on
FILES = (".json", ".gz", ".tsv", ".csv", ".jsonl", ".parquet", ".txt", ".conll")
MOST_SHOWN = 3  # labels or groups of them in one line


class ExperimentData(NamedTuple):
    """The splits of an experiment."""

    task: Task
    held_out: Split[Any] | None  # the part of train that nothing learns from; None where `data.held_out` is 0
    near_misses: dict[str, int]  # made for train, by rule


def read_data(experiment: Experiment, progress: Progress = SILENT, *, with_dev: bool = True) -> ExperimentData:
    """Read all splits; without `with_dev` dev is not read, and what is held out of train stands in its place."""
    task = read_task(experiment.task, experiment.data, with_dev=with_dev)
    for split in (task.train, task.dev, *task.also.values()):
        if split.dropped:
            progress.say(left_out(split.name, len(split.examples), split.dropped, split.first_bad))
    if experiment.data.folds is not None:
        progress.say(_own_dev(task, experiment.data))
    task, held_out = _held_out(task, experiment.data)
    if not with_dev and held_out is not None:
        task = task._replace(dev=held_out)
    task, near_misses = _near_misses(task, experiment.data, progress)
    return ExperimentData(task, held_out, near_misses)


def _own_dev(task: Task, data: DataConfig) -> str:
    """Say what dev is where it is a part of train."""
    dev, rows = len(task.dev.examples), len(task.train.examples) + len(task.dev.examples)
    return (
        f"{data.train}: {dev:,} of its {counted(rows, task.kind.noun)} are dev (fold {data.fold} of {data.folds}): "
        "scored, and not learned from; name a file of others with data.dev"
    )


def read_search_data(experiment: Experiment, progress: Progress = SILENT) -> ExperimentData:
    """Read what a search learns from and scores trials on; dev, which is read at its end, has to be there."""
    data = experiment.data
    dev = parse_source(data.dev).whole
    if data.folds is None and dev.endswith(FILES) and not exists(dev):
        raise DataError(f"{dev}: no such file; data.dev is read at the end of the search, for the best trial")
    if data.held_out == 0:
        data = data.model_copy(update={"held_out": DEFAULT_HELD_OUT})
        progress.say(f"data.held_out is 0: a share of {DEFAULT_HELD_OUT:g} of train is held out to score trials on")
    found = read_data(experiment.model_copy(update={"data": data}), progress, with_dev=False)
    rows, noun = len(found.task.dev.examples), found.task.kind.noun
    progress.say(
        f"trials are scored on {counted(rows, f'held-out {noun}')}: {half_right(rows)}; nearer trials may be equal"
    )
    return found


def _held_out(task: Task, data: DataConfig) -> tuple[Task, Split[Any] | None]:
    if data.held_out == 0:
        return task, None
    if isinstance(data.held_out, str):
        given: Split[Any] = read_labelled(task.name, data.held_out, data, task.labels).split
        check_apart(task.train, given)
        return task, given
    train, held_out = hold_out(task.train, data.held_out)
    return task._replace(train=train), held_out


def _near_misses(task: Task, data: DataConfig, progress: Progress) -> tuple[Task, dict[str, int]]:
    """Add near misses to what is learned from, where they are asked for; what is held out stays as people wrote it."""
    if data.near_misses is None:
        return task, {}
    if not task.kind.learns_unanswerable:
        able = " and ".join(name for name, info in TASKS.items() if info.kind.learns_unanswerable)
        raise SettingsError(f"data.near_misses works with {able}, and the task is {task.name}; leave it out")
    train, found = with_near_misses(task.train, data.near_misses, progress)
    progress.say(found.summary)
    return task._replace(train=train), found.counts


def alike_labels(labels: Sequence[str]) -> list[str]:
    """Return a caution where labels differ in nothing but case or spaces or are one number, which are slips mostly."""
    groups: dict[str | float, list[str]] = {}
    for label in labels:
        number = finite_number(label)  # 1 and 1.0, as tables that lacked some labels are often saved
        groups.setdefault("".join(label.casefold().split()) if number is None else number, []).append(label)
    alike = [" and ".join(map(repr, group)) for group in groups.values() if len(group) > 1]
    if not alike:
        return []
    shown = ", ".join(alike[:MOST_SHOWN]) + (", ..." if len(alike) > MOST_SHOWN else "")
    cure = "write them alike where they mean the same"
    return [f"labels that differ only in how they are written are learned apart: {shown}; {cure}"]
