"""An experiment's `task` and `data` -> its splits."""

from bertvision.data.example import DataConfig, TaskName
from bertvision.data.held_out import fold
from bertvision.data.sources import CAN_DROP
from bertvision.data.squad import SAMPLES, Need
from bertvision.errors import DataError
from bertvision.kinds.kind import Labelled, Reading
from bertvision.tasks import TASKS, Task


def read_task(name: TaskName, data: DataConfig) -> Task:
    """Read all splits of an experiment; labels that neither the task nor `data.labels` names are those of train."""
    train, labels = read_labelled(name, data.train, data, hub_split="train")
    if len(labels) == 1 and TASKS[name].kind.needs_two_labels:
        raise DataError(f"{train.name}: all its labels are {labels[0]!r}; there is nothing to tell apart")
    if data.folds is None:
        dev = read_labelled(name, data.dev, data, labels).split
    else:
        train, dev = fold(train, data.fold, data.folds)
    also = {
        key: read_labelled(name, source, data, labels, hub_split=f"validation_{key}").split
        for key, source in data.also.items()
    }
    return Task(name, train, dev, labels, also)


def read_labelled(
    name: TaskName,
    source: str,
    data: DataConfig,
    labels: tuple[str, ...] = (),
    *,
    hub_split: str | None = None,
    need: Need = "placed",
    can_drop: bool = True,
) -> Labelled:
    """Read one source as a task's; the order of labels is the given one, the task's, or that of the source.

    Where `need` is `optional`, examples may come without labels; without `can_drop`, errors do not advise to drop.
    """
    info = TASKS[name]
    if source in SAMPLES and not info.kind.asks_questions:
        raise DataError(f"{source} holds questions, and task {name} needs {info.files}: set data.train and data.dev")
    split = hub_split or (info.hub.split if info.hub is not None else None) or "validation"
    labels = labels or data.labels or info.labels
    return info.kind.read(name, info, source, Reading(data, labels, split, need, CAN_DROP if can_drop else ""))
