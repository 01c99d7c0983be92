"""Every task: what is asked, how its files are laid out, its labels in order, its scores, its place on the hub.

An experiment's `task` and `data` -> its splits; a split that is to be answered -> its examples, cut into windows.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from bertvision.data.example import ColumnsConfig, DataConfig, Split, TaskName
from bertvision.data.sources import CAN_DROP, HubId, parse_source
from bertvision.data.split import fold
from bertvision.data.squad import SAMPLES, Need
from bertvision.data.tables import ending_of
from bertvision.errors import DataError, SettingsError
from bertvision.kinds.kind import Answering, Cutting, ExtraScore, Kind, Labelled, Reading, TaskInfo
from bertvision.kinds.labels import ANSWERABLE, CHOICES, CLASSES, LABELS
from bertvision.kinds.numbers import NUMBERS
from bertvision.kinds.spans import SQUAD1, SQUAD2
from bertvision.kinds.tags import TAGS
from bertvision.predictions.prediction import AnswerConfig
from bertvision.progress import SILENT, Progress
from bertvision.windows.tokens import Tokenizer
from bertvision.windows.window import WindowConfig

ENTAILMENT = ("entailment", "not_entailment")
DUPLICATES = ("not_duplicate", "duplicate")
UNREAD: Split[Any] = Split("(not read)", (), 0, None)
KINDS: dict[str, Kind] = {kind.name: kind for kind in (SQUAD2, ANSWERABLE, CLASSES, LABELS, NUMBERS, CHOICES, TAGS)}


class Task(NamedTuple):
    """The splits of an experiment, and what is asked of their examples."""

    name: TaskName
    train: Split[Any]
    dev: Split[Any]
    labels: tuple[str, ...] = ()  # names of the classes, labels or tags, by number
    also: Mapping[str, Split[Any]] = {}  # further splits to score

    @property
    def info(self) -> TaskInfo:
        """The task's row of the table."""
        return TASKS[self.name]

    @property
    def kind(self) -> Kind:
        """What is asked of an example."""
        return self.info.kind


def _table(*text: str, label: str = "label", id: str = "index") -> ColumnsConfig:  # noqa: A002 (the column's name)
    return ColumnsConfig(text=text[0] if len(text) == 1 else (text[0], text[1]), label=label, id=id)


def _glue(name: str, dev: str = "validation") -> HubId:
    return HubId("nyu-mll/glue", name, dev)


def _hub(*text: str) -> ColumnsConfig:
    return _table(*text, id="idx")


SQUAD = "SQuAD files (.json or .json.gz)"
TABLES = "tables (.csv, .tsv, .jsonl or .parquet)"
TASKS: dict[TaskName, TaskInfo] = {
    "squad1": TaskInfo(SQUAD1, ("f1", "exact_match"), files=SQUAD),
    "squad2": TaskInfo(SQUAD2, ("f1", "exact"), files=SQUAD),
    "answerability": TaskInfo(
        ANSWERABLE,
        ("accuracy", "f1", "paper_v1_accuracy", "paper_v1_f1"),
        labels=("answer", "no answer"),
        files=SQUAD,
    ),
    "cola": TaskInfo(
        CLASSES,
        ("matthews",),
        # train.tsv and dev.tsv have no header, test.tsv has one.
        (_table("sentence"), _hub("sentence"), ColumnsConfig(text=3, label=1)),
        ("unacceptable", "acceptable"),
        _glue("cola"),
        {"": "CoLA.tsv"},
        files="CoLA/train.tsv and CoLA/dev.tsv",
    ),
    "sst2": TaskInfo(
        CLASSES,
        ("accuracy",),
        (_table("sentence"), _hub("sentence")),
        ("negative", "positive"),
        _glue("sst2"),
        {"": "SST-2.tsv"},
        files="SST-2/train.tsv and SST-2/dev.tsv",
    ),
    "mrpc": TaskInfo(
        CLASSES,
        ("accuracy", "f1"),
        (_table("#1 String", "#2 String", label="Quality"), _hub("sentence1", "sentence2")),
        ("not_equivalent", "equivalent"),
        _glue("mrpc"),
        {"": "MRPC.tsv"},
        files="MRPC/train.tsv and MRPC/dev.tsv (or msr_paraphrase_test.txt)",
    ),
    "qqp": TaskInfo(
        CLASSES,
        ("accuracy", "f1"),
        (_table("question1", "question2", label="is_duplicate"), _hub("question1", "question2")),
        DUPLICATES,
        _glue("qqp"),
        {"": "QQP.tsv"},
        files="QQP/train.tsv and QQP/dev.tsv",
    ),
    "stsb": TaskInfo(
        NUMBERS,
        ("pearson", "spearman"),
        (_table("sentence1", "sentence2", label="score"), _hub("sentence1", "sentence2")),
        hub=_glue("stsb"),
        submission={"": "STS-B.tsv"},
        files="STS-B/train.tsv and STS-B/dev.tsv",
    ),
    "mnli": TaskInfo(
        CLASSES,
        ("accuracy",),
        (_table("sentence1", "sentence2", label="gold_label"), _hub("premise", "hypothesis")),
        ("entailment", "neutral", "contradiction"),
        _glue("mnli", "validation_matched"),
        {"": "MNLI-m.tsv", "mismatched": "MNLI-mm.tsv"},
        submits_names=True,
        files="MNLI/train.tsv and MNLI/dev_matched.tsv, and data.extra_dev_sets.mismatched=MNLI/dev_mismatched.tsv",
    ),
    "qnli": TaskInfo(
        CLASSES,
        ("accuracy",),
        (_table("question", "sentence"), _hub("question", "sentence")),
        ENTAILMENT,
        _glue("qnli"),
        {"": "QNLI.tsv"},
        submits_names=True,
        files="QNLI/train.tsv and QNLI/dev.tsv",
    ),
    "rte": TaskInfo(
        CLASSES,
        ("accuracy",),
        (_table("sentence1", "sentence2"), _hub("sentence1", "sentence2")),
        ENTAILMENT,
        _glue("rte"),
        {"": "RTE.tsv"},
        submits_names=True,
        files="RTE/train.tsv and RTE/dev.tsv",
    ),
    "wnli": TaskInfo(
        CLASSES,
        ("accuracy",),
        (_table("sentence1", "sentence2"), _hub("sentence1", "sentence2")),
        ("not_entailment", "entailment"),
        _glue("wnli"),
        {"": "WNLI.tsv"},
        files="WNLI/train.tsv and WNLI/dev.tsv",
    ),
    "swag": TaskInfo(
        CHOICES,
        ("accuracy",),
        hub=HubId("allenai/swag", "regular", "validation"),
        files="SWAG's train.csv and val.csv, or HellaSwag's .jsonl",
    ),
    "ner": TaskInfo(TAGS, ("f1", "precision", "recall", "accuracy"), files="CoNLL files (word first, tag last)"),
    "classification": TaskInfo(CLASSES, ("accuracy", "macro_f1"), (ColumnsConfig(),), files=TABLES),
    "multilabel": TaskInfo(LABELS, ("micro_f1", "macro_f1", "exact"), (ColumnsConfig(),), files=TABLES),
    "regression": TaskInfo(NUMBERS, ("pearson", "spearman", "rmse", "mae"), (ColumnsConfig(),), files=TABLES),
}


def task_name(name: str) -> TaskName:
    """Take a name that somebody typed for a task's, or say which there are."""
    for known in TASKS:
        if known == name:
            return known
    raise SettingsError(f"no task {name!r}; known: {', '.join(map(repr, TASKS))}")


def read_task(name: TaskName, data: DataConfig, *, with_dev: bool = True) -> Task:
    """Read all splits of an experiment, or train alone; labels that nothing else names are those of train."""
    train, labels = read_labelled(name, data.train, data, hub_split="train")
    if len(labels) == 1 and TASKS[name].kind.needs_two_labels:
        raise DataError(
            f"{train.name}: all its labels are {labels[0]!r}; there is nothing to tell apart; give rows of two or more"
        )
    if data.folds is None:
        dev = read_labelled(name, data.dev, data, labels).split if with_dev else UNREAD
    else:
        train, dev = fold(train, data.fold, data.folds)
    also = {
        key: read_labelled(name, source, data, labels, hub_split=f"validation_{key}").split
        for key, source in (data.extra_dev_sets.items() if with_dev else ())
    }
    return Task(name, train, dev, labels, also)


# What a file is by its ending, and a task that reads it.
TABLE = ("a table", "classification")
TABLES_ALONE = dict.fromkeys((".csv", ".jsonl", ".ndjson", ".parquet"), TABLE)  # tags can be .tsv and .txt, too
NOT_QUESTIONS = {**TABLES_ALONE, ".tsv": TABLE, ".conll": ("a file of tagged words", "ner")}


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
    refused = NOT_QUESTIONS if info.kind.asks_questions else TABLES_ALONE if info.kind.labels_words else {}
    if (ending := ending_of(parse_source(source).whole)) in refused:
        what, other = refused[ending]
        or_task = "" if need == "optional" else f", or a task such as {other}"  # a model has its own
        raise DataError(f"{source}: is {what}, and task {name} needs {info.files}; give one{or_task}")
    split = hub_split or (info.hub.split if info.hub is not None else None) or "validation"
    labels = labels or data.labels or info.labels
    return info.kind.read(info, source, Reading(data, labels, split, need, CAN_DROP if can_drop else ""))


def open_answering(
    task: Task,
    split: Split[Any],
    tokenizer: Tokenizer,
    windows: WindowConfig,
    answers: AnswerConfig,
    *,
    part: str = "",
    extra_scores: Mapping[str, ExtraScore] | None = None,
    progress: Progress = SILENT,
) -> Answering:
    """Cut a split and get it ready to be answered; `part` names one beside dev, such as `mismatched`."""
    cut = task.kind.cut(split.examples, task.labels, Cutting(tokenizer, windows, labelled=False, progress=progress))
    return Answering(task.name, task.info, task.labels, split, cut, answers, part, tokenizer, extra_scores or {})
