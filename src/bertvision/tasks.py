"""Every task: what is asked, how its files are laid out, its labels in order, its scores, its place on the hub."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from bertvision.data.example import ColumnsConfig, Split, TaskName
from bertvision.data.sources import HubId
from bertvision.errors import SettingsError
from bertvision.kinds.answerable import ANSWERABLE
from bertvision.kinds.choices import CHOICES
from bertvision.kinds.classes import CLASSES
from bertvision.kinds.kind import Kind, TaskInfo
from bertvision.kinds.labels import LABELS
from bertvision.kinds.numbers import NUMBERS
from bertvision.kinds.spans import SQUAD1, SQUAD2
from bertvision.kinds.tags import TAGS

ENTAILMENT = ("entailment", "not_entailment")
DUPLICATES = ("not_duplicate", "duplicate")


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
        files="MNLI/train.tsv and MNLI/dev_matched.tsv, and data.also.mismatched=MNLI/dev_mismatched.tsv",
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
