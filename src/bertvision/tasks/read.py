"""An experiment's `task` and `data` -> its splits."""

from typing import Any, NamedTuple

from bertvision.errors import DataError
from bertvision.tasks.catalog import TASKS
from bertvision.tasks.choices import read_choices
from bertvision.tasks.collect import CAN_DROP
from bertvision.tasks.folds import fold
from bertvision.tasks.ner import read_ner, tag_names
from bertvision.tasks.rows import RowLayout, read_rows
from bertvision.tasks.squad import SAMPLES, Need, read_squad
from bertvision.tasks.task import ChoiceRow, DataConfig, Question, Split, Task, TaskName


class Labelled(NamedTuple):
    """A split and the names of its labels, by number."""

    split: Split[Any]
    labels: tuple[str, ...]


def read_task(name: TaskName, data: DataConfig) -> Task:
    """Read all splits of an experiment; labels that neither the task nor `data.labels` names are those of train."""
    train, labels = read_labelled(name, data.train, data, hub_split="train")
    if TASKS[name].kind == "class" and len(labels) < 2:
        raise DataError(f"{train.name}: all its labels are {labels[0]!r}; there is nothing to tell apart")
    if data.folds is None:
        dev = read_labelled(name, data.dev, data, labels).split
    else:
        train, dev = fold(train, data.fold, data.folds)
    also = {
        key: read_labelled(name, source, data, labels, hub_split=f"validation_{key}").split
        for key, source in data.also.items()
    }
    return Task(name, TASKS[name].kind, train, dev, labels, also)


def read_labelled(
    name: TaskName,
    source: str,
    data: DataConfig,
    labels: tuple[str, ...] = (),
    *,
    hub_split: str | None = None,
    needs_labels: bool = True,
    can_drop: bool = True,
) -> Labelled:
    """Read one source as a task's; the order of labels is the given one, the task's, or that of the source.

    Without `needs_labels`, examples may come without labels; without `can_drop`, errors do not advise to drop.
    """
    info = TASKS[name]
    labels = labels or data.labels or info.labels
    split_name = hub_split or (info.hub.split if info.hub is not None else None) or "validation"
    advice = CAN_DROP if can_drop else ""
    if source in SAMPLES and info.kind not in ("span", "answerable"):
        raise DataError(f"{source} holds questions, and task {name} needs {info.files}: set data.train and data.dev")
    match info.kind:
        case "span" | "answerable":
            return Labelled(_read_questions(name, source, data, split_name, needs_labels), labels)
        case "choice":
            split = read_choices(
                source,
                hub=info.hub,
                on_bad=data.on_bad,
                hub_split=split_name,
                needs_labels=needs_labels,
                advice=advice,
            )
            return Labelled(split, _ending_names(split, labels))
        case "tags":
            sentences = read_ner(
                source,
                tagging=data.tagging,
                labels=labels,
                on_bad=data.on_bad,
                needs_labels=needs_labels,
                advice=advice,
            )
            return Labelled(sentences, labels or tag_names(sentences))
        case "class" | "labels" | "number":
            layout = row_layout(name, data, labels)
            rows = read_rows(
                source,
                layout,
                on_bad=data.on_bad,
                hub_split=split_name,
                needs_labels=needs_labels,
                advice=advice,
            )
            return Labelled(*rows)


def row_layout(name: TaskName, data: DataConfig, labels: tuple[str, ...] = ()) -> RowLayout:
    """Say how a task's tables are written, the settings' columns before the published ones."""
    info = TASKS[name]
    return RowLayout(
        info.kind,
        (data.columns,) if data.columns is not None else info.layouts,
        labels,
        is_published=info.hub is not None,
        header=data.header,
        quoted=data.quoted,
        separator=data.separator,
        hub=info.hub,
    )


def _ending_names(split: Split[ChoiceRow], expected: tuple[str, ...]) -> tuple[str, ...]:
    """Name the endings by their numbers; refuse rows with other than the expected number of them, if there is one."""
    found = len(split.examples[0].endings)
    if expected and found != len(expected):
        raise DataError(f"{split.name}: its rows have {found} endings, those of train {len(expected)}; give as many")
    return tuple(map(str, range(found)))


def _read_questions(
    name: TaskName, source: str, data: DataConfig, hub_split: str, needs_labels: bool
) -> Split[Question]:
    need: Need = "placed" if needs_labels else "optional"
    split = read_squad(source, on_bad=data.on_bad, hub_split=hub_split, answers=need)
    if name == "squad1" and needs_labels:
        _refuse_unanswerable(split)
    return split


def _refuse_unanswerable(split: Split[Question]) -> None:
    for question in split.examples:
        if question.is_impossible:
            raise DataError(
                f"{split.name}: question {question.id!r} has no answer, which SQuAD 1.1 does not know; use task: squad2"
            )
