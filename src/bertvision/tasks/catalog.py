"""Every task: what is asked, how its files are laid out, its labels in order, its scores, its place on the hub."""

from collections.abc import Mapping
from typing import NamedTuple

from bertvision.errors import SettingsError
from bertvision.tasks.source import HubId
from bertvision.tasks.task import ColumnsConfig, Kind, TaskName

ENTAILMENT = ("entailment", "not_entailment")
DUPLICATES = ("not_duplicate", "duplicate")


class TaskInfo(NamedTuple):
    """One row of the table of tasks."""

    kind: Kind
    scores: tuple[str, ...]  # the first is the one that stands for the task
    layouts: tuple[ColumnsConfig, ...] = ()  # of its tables, published and on the hub; the first that fits is taken
    labels: tuple[str, ...] = ()  # in GLUE's order, as the hub numbers them; empty: from the training data
    hub: HubId | None = None  # its split is the one for dev
    submission: Mapping[str, str] = {}  # GLUE's name for the file of the test set, by the name of the split
    submits_names: bool = False  # what GLUE wants in it: the labels' names, or their numbers
    files: str = ""  # what to give, in words


def _table(*text: str, label: str = "label", id: str = "index") -> ColumnsConfig:  # noqa: A002 (the column's name)
    return ColumnsConfig(text=text[0] if len(text) == 1 else (text[0], text[1]), label=label, id=id)


def _glue(name: str, dev: str = "validation") -> HubId:
    return HubId("nyu-mll/glue", name, dev)


def _hub(*text: str) -> ColumnsConfig:
    return _table(*text, id="idx")


SQUAD = "SQuAD files (.json or .json.gz)"
TABLES = "tables (.csv, .tsv, .jsonl or .parquet)"
TASKS: dict[TaskName, TaskInfo] = {
    "squad1": TaskInfo("span", ("f1", "exact_match"), files=SQUAD),
    "squad2": TaskInfo("span", ("f1", "exact"), files=SQUAD),
    "answerability": TaskInfo(
        "answerable",
        ("accuracy", "f1", "paper_v1_accuracy", "paper_v1_f1"),
        labels=("answer", "no answer"),
        files=SQUAD,
    ),
    "cola": TaskInfo(
        "class",
        ("matthews",),
        # train.tsv and dev.tsv have no header, test.tsv has one.
        (_table("sentence"), _hub("sentence"), ColumnsConfig(text=3, label=1)),
        ("unacceptable", "acceptable"),
        _glue("cola"),
        {"": "CoLA.tsv"},
        files="CoLA/train.tsv and CoLA/dev.tsv",
    ),
    "sst2": TaskInfo(
        "class",
        ("accuracy",),
        (_table("sentence"), _hub("sentence")),
        ("negative", "positive"),
        _glue("sst2"),
        {"": "SST-2.tsv"},
        files="SST-2/train.tsv and SST-2/dev.tsv",
    ),
    "mrpc": TaskInfo(
        "class",
        ("accuracy", "f1"),
        (_table("#1 String", "#2 String", label="Quality"), _hub("sentence1", "sentence2")),
        ("not_equivalent", "equivalent"),
        _glue("mrpc"),
        {"": "MRPC.tsv"},
        files="MRPC/train.tsv and MRPC/dev.tsv (or msr_paraphrase_test.txt)",
    ),
    "qqp": TaskInfo(
        "class",
        ("accuracy", "f1"),
        (_table("question1", "question2", label="is_duplicate"), _hub("question1", "question2")),
        DUPLICATES,
        _glue("qqp"),
        {"": "QQP.tsv"},
        files="QQP/train.tsv and QQP/dev.tsv",
    ),
    "stsb": TaskInfo(
        "number",
        ("pearson", "spearman"),
        (_table("sentence1", "sentence2", label="score"), _hub("sentence1", "sentence2")),
        hub=_glue("stsb"),
        submission={"": "STS-B.tsv"},
        files="STS-B/train.tsv and STS-B/dev.tsv",
    ),
    "mnli": TaskInfo(
        "class",
        ("accuracy",),
        (_table("sentence1", "sentence2", label="gold_label"), _hub("premise", "hypothesis")),
        ("entailment", "neutral", "contradiction"),
        _glue("mnli", "validation_matched"),
        {"": "MNLI-m.tsv", "mismatched": "MNLI-mm.tsv"},
        submits_names=True,
        files="MNLI/train.tsv and MNLI/dev_matched.tsv, and data.also.mismatched=MNLI/dev_mismatched.tsv",
    ),
    "qnli": TaskInfo(
        "class",
        ("accuracy",),
        (_table("question", "sentence"), _hub("question", "sentence")),
        ENTAILMENT,
        _glue("qnli"),
        {"": "QNLI.tsv"},
        submits_names=True,
        files="QNLI/train.tsv and QNLI/dev.tsv",
    ),
    "rte": TaskInfo(
        "class",
        ("accuracy",),
        (_table("sentence1", "sentence2"), _hub("sentence1", "sentence2")),
        ENTAILMENT,
        _glue("rte"),
        {"": "RTE.tsv"},
        submits_names=True,
        files="RTE/train.tsv and RTE/dev.tsv",
    ),
    "wnli": TaskInfo(
        "class",
        ("accuracy",),
        (_table("sentence1", "sentence2"), _hub("sentence1", "sentence2")),
        ("not_entailment", "entailment"),
        _glue("wnli"),
        {"": "WNLI.tsv"},
        files="WNLI/train.tsv and WNLI/dev.tsv",
    ),
    "swag": TaskInfo(
        "choice",
        ("accuracy",),
        hub=HubId("allenai/swag", "regular", "validation"),
        files="SWAG's train.csv and val.csv, or HellaSwag's .jsonl",
    ),
    "ner": TaskInfo("tags", ("f1", "precision", "recall", "accuracy"), files="CoNLL files (word first, tag last)"),
    "classification": TaskInfo("class", ("accuracy", "macro_f1"), (ColumnsConfig(),), files=TABLES),
    "multilabel": TaskInfo("labels", ("micro_f1", "macro_f1", "exact"), (ColumnsConfig(),), files=TABLES),
    "regression": TaskInfo("number", ("pearson", "spearman", "rmse", "mae"), (ColumnsConfig(),), files=TABLES),
}


def task_name(name: str) -> TaskName:
    """Take a name that somebody typed for a task's, or say which there are."""
    for known in TASKS:
        if known == name:
            return known
    raise SettingsError(f"no task {name!r}; known: {', '.join(map(repr, TASKS))}")
