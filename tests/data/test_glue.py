"""GLUE's files as they are published, with their blemishes, and the hub's rows."""

import datasets
import pytest

from bertvision.data.example import DataConfig
from bertvision.errors import DataError
from bertvision.tasks import TASKS, read_labelled, read_task, task_name

MNLI = "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse"
MNLI_ROW = "0\t1\t1n\tfiction\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tIt rained .\tIt was wet ."
STSB = "index genre filename year old_index source1 source2 sentence1 sentence2 score".replace(" ", "\t")

# Task, file, texts of the first row, labels as numbers. The quotes are never closed, as in the published files.
PUBLISHED = [
    ("cola", 'gj04\t1\t\tHe "left.\ngj04\t0\t*\tLeft he.\nbc01\t1\t\tShe ran', ('He "left.',), [1, 0, 1]),
    ("sst2", "sentence\tlabel\nit 's \"fine \t1\nbad\t0\n", ("it 's \"fine ",), [1, 0]),
    (
        "mrpc",
        '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t7\t8\t" He left .\tHe went .\r\n0\t9\t7\tA .\tB .',
        ('" He left .', "He went ."),
        [1, 0],
    ),
    (
        "qqp",
        'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n5\t1\t2\tWhy "so?\tHow?\t0\n6\t3\t4\tA?\tB?\t1\n',
        ('Why "so?', "How?"),
        [0, 1],
    ),
    (
        "stsb",
        f'{STSB}\n0\tmain\tMSR\t2012\t0001\tnone\tnone\tA plane .\tA "jet .\t5.000\n1\tm\tM\t2\t3\tn\tn\tA\tB\t0.8\n',
        ("A plane .", 'A "jet .'),
        [5.0, 0.8],
    ),
    (
        "mnli",  # as train.tsv: 12 columns
        "\t".join([*MNLI.split(), "sentence1", "sentence2", "label1", "gold_label"])
        + f"\n{MNLI_ROW}\tneutral\tentailment\n{MNLI_ROW.replace('0', '1', 1)}\tneutral\tcontradiction\n",
        ("It rained .", "It was wet ."),
        [0, 2],
    ),
    (
        "mnli",  # as dev_matched.tsv: 16 columns
        "\t".join([*MNLI.split(), "sentence1", "sentence2", *(f"label{n}" for n in range(1, 6)), "gold_label"])
        + f"\n{MNLI_ROW}\tneutral\tneutral\tentailment\tneutral\tneutral\tneutral\n",
        ("It rained .", "It was wet ."),
        [1],
    ),
    (
        "qnli",
        'index\tquestion\tsentence\tlabel\n0\tWho?\tThe "weir\tentailment\n1\tWhen?\tIn 1887\tnot_entailment\n',
        ("Who?", 'The "weir'),
        [0, 1],
    ),
    ("rte", "index\tsentence1\tsentence2\tlabel\n0\tA .\tB .\tnot_entailment\n", ("A .", "B ."), [1]),
    ("wnli", "index\tsentence1\tsentence2\tlabel\n0\tA .\tB .\t1\n1\tA\tB\t0\n", ("A .", "B ."), [1, 0]),
]


@pytest.fixture
def write(tmp_path):
    def to_file(content, name="train.tsv"):
        (tmp_path / name).write_bytes(content.encode())
        return str(tmp_path / name)

    return to_file


@pytest.mark.parametrize(("task", "content", "texts", "labels"), PUBLISHED)
def test_published_files_give_all_their_rows(write, task, content, texts, labels):
    split, names = read_labelled(task, write(content), DataConfig())
    assert split.examples[0].texts == texts
    assert [row.label for row in split.examples] == labels
    assert [row.id for row in split.examples] == [str(number) for number in range(len(labels))]
    assert (names, split.dropped) == (TASKS[task].labels, 0)


def test_the_older_mrpc_file_is_another_dev_set(write):
    content = PUBLISHED[2][1]
    task = read_task("mrpc", DataConfig(train=write(content), dev=write(content, "msr_paraphrase_test.txt")))
    assert [row.label for row in task.dev.examples] == [1, 0]


@pytest.mark.parametrize(
    ("task", "content"),
    [
        ("cola", "index\tsentence\n0\tHe left.\n1\tLeft he.\n"),
        ("sst2", "index\tsentence\n0\tfine\n1\tbad\n"),
        ("mrpc", "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t7\t8\tA\tB\n1\t7\t8\tA\tB\n"),
        ("qqp", "id\tquestion1\tquestion2\n0\tA\tB\n1\tA\tB\n"),
        ("stsb", "index\tsentence1\tsentence2\n0\tA\tB\n1\tA\tB\n"),
        ("mnli", "index\tsentence1\tsentence2\n0\tA\tB\n1\tA\tB\n"),
    ],
)
def test_test_files_have_no_labels_and_are_read_for_prediction_alone(write, task, content):
    source = write(content, "test.tsv")
    split, _ = read_labelled(task, source, DataConfig(), need="optional")
    assert [(row.id, row.label) for row in split.examples] == [("0", None), ("1", None)]
    with pytest.raises(DataError, match=r"test\.tsv: no column"):
        read_labelled(task, source, DataConfig())


def test_a_row_of_mnli_without_agreement_is_refused_or_dropped(write):
    content = PUBLISHED[5][1] + f"{MNLI_ROW.replace('0', '2', 1)}\tneutral\t-\n"
    with pytest.raises(DataError, match=r"line 4: column `gold_label`: '-' is no label; expected 'entailment', 'neu"):
        read_labelled("mnli", write(content), DataConfig())
    split = read_labelled("mnli", write(content), DataConfig(on_bad="drop")).split
    assert (len(split.examples), split.dropped) == (2, 1)


def test_mnli_has_a_second_dev_set(write):
    train, dev = write(PUBLISHED[5][1]), write(PUBLISHED[6][1], "dev.tsv")
    task = read_task("mnli", DataConfig(train=train, dev=dev, extra_dev_sets={"mismatched": dev}))
    assert (task.kind.name, task.also) == ("class", {"mismatched": task.dev})


# `label_classes` and `text_features` of glue.py, the script that made the hub's nyu-mll/glue.
HUB_LABELS = {
    "cola": ("unacceptable", "acceptable"),
    "sst2": ("negative", "positive"),
    "mrpc": ("not_equivalent", "equivalent"),
    "qqp": ("not_duplicate", "duplicate"),
    "mnli": ("entailment", "neutral", "contradiction"),
    "qnli": ("entailment", "not_entailment"),
    "rte": ("entailment", "not_entailment"),
    "wnli": ("not_entailment", "entailment"),
}
HUB_COLUMNS = {
    **dict.fromkeys(("cola", "sst2"), ("sentence",)),
    **dict.fromkeys(("mrpc", "stsb", "rte", "wnli"), ("sentence1", "sentence2")),
    "qqp": ("question1", "question2"),
    "mnli": ("premise", "hypothesis"),
    "qnli": ("question", "sentence"),
}


@pytest.mark.parametrize("task", HUB_COLUMNS)
def test_the_hubs_rows_are_read_under_their_own_names(monkeypatch, task):
    calls = []

    def load_dataset(*named, split):
        calls.append((*named, split))
        rows = [{**dict.fromkeys(HUB_COLUMNS[task], "text"), "label": label, "idx": 7 + label} for label in (1, 0)]
        return datasets.Dataset.from_list(rows)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    read = read_task(task, DataConfig(train="nyu-mll/glue", dev="nyu-mll/glue"))
    assert [(row.id, row.label) for row in read.train.examples] == [("8", 1), ("7", 0)]
    assert read.train.examples[0].texts == ("text",) * len(HUB_COLUMNS[task])
    assert read.labels == HUB_LABELS.get(task, ())
    dev = "validation_matched" if task == "mnli" else "validation"
    assert calls == [("nyu-mll/glue", task, "train"), ("nyu-mll/glue", task, dev)]


def test_the_hubs_unknown_labels_are_none(monkeypatch):
    rows = [{"sentence": "text", "label": -1, "idx": 0}]
    monkeypatch.setattr(datasets, "load_dataset", lambda *named, split: rows)
    split = read_labelled("cola", "nyu-mll/glue:test", DataConfig(), need="optional").split
    assert split.examples[0].label is None
    with pytest.raises(DataError, match="row 1: column `label` has no label; give one"):
        read_labelled("cola", "nyu-mll/glue:test", DataConfig())


def test_another_data_set_of_the_hub_names_its_own_configuration(monkeypatch):
    calls = []
    rows = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]
    monkeypatch.setattr(datasets, "load_dataset", lambda *named, split: calls.append((*named, split)) or rows)
    read_labelled("classification", "owner/name/subset:test", DataConfig())
    assert calls == [("owner/name", "subset", "test")]


@pytest.mark.parametrize("task", [name for name in TASKS if not TASKS[name].kind.asks_questions])
def test_a_task_without_files_says_which_to_give(task):
    with pytest.raises(DataError) as caught:
        read_task(task, DataConfig())
    assert str(caught.value) == (
        f"sample:train holds questions, and task {task} needs {TASKS[task].files}: set data.train and data.dev"
    )


def test_answerability_reads_questions(tmp_path):
    task = read_task("answerability", DataConfig())
    assert (task.kind.name, task.labels) == ("answerable", ("answer", "no answer"))


def test_every_task_is_known_by_its_name():
    assert [task_name(name) for name in TASKS] == list(TASKS)


def test_the_hubs_second_dev_set_of_mnli_is_found_by_its_name(monkeypatch):
    calls = []
    rows = [{"premise": "a", "hypothesis": "b", "label": 1, "idx": 0}]
    monkeypatch.setattr(datasets, "load_dataset", lambda *named, split: calls.append(split) or rows)
    hub = "nyu-mll/glue"
    read_task("mnli", DataConfig(train=hub, dev=hub, extra_dev_sets={"mismatched": hub}))
    assert calls == ["train", "validation_matched", "validation_mismatched"]
