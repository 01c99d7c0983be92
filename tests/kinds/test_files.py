import json
from dataclasses import replace

import pytest

from bertvision.data.example import Sentence, TextRow
from bertvision.errors import DataError
from bertvision.kinds.kind import Golds
from bertvision.predictions.files import read_values
from bertvision.predictions.prediction import RowPrediction, TagPrediction
from bertvision.tasks import TASKS

CLASSES = [RowPrediction("0", 1, (0.25, 0.75)), RowPrediction("1", 0, (0.5, 0.5))]


def golds(task, labels, ids):
    return Golds(task, TASKS[task], [TextRow(each, ("text",), None) for each in ids], tuple(labels))


def write_rows(folder, task, labels, predictions, part=""):
    TASKS[task].kind.write(folder, golds(task, labels, ()), predictions, part)


def read_rows(path, task, labels):
    return TASKS[task].kind.read_predictions(path, golds(task, labels, read_values(path)))


def write_tags(folder, sentences, predictions):
    TASKS["ner"].kind.write(folder, Golds("ner", TASKS["ner"], sentences, ()), predictions)


def read_tags(path, sentences):
    return TASKS["ner"].kind.read_predictions(path, Golds("ner", TASKS["ner"], sentences, ()))


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_classes_are_written_by_name_and_read_back(tmp_path):
    write_rows(tmp_path, "classification", ("bad", "good"), CLASSES)
    assert json.loads((tmp_path / "predictions.json").read_text()) == {"0": "good", "1": "bad"}
    assert json.loads((tmp_path / "probabilities.json").read_text()) == {
        "0": {"bad": 0.25, "good": 0.75},
        "1": {"bad": 0.5, "good": 0.5},
    }
    assert names_in(tmp_path) == ["predictions.json", "probabilities.json"]
    assert read_rows(tmp_path, "classification", ("bad", "good")) == CLASSES
    assert read_rows(tmp_path / "predictions.json", "classification", ("bad", "good")) == CLASSES


def test_probabilities_are_read_by_name_and_as_they_were_once_written(tmp_path):
    (tmp_path / "predictions.json").write_text('{"0": "good", "1": "bad"}')
    named = {"0": {"good": 0.75, "bad": 0.25}, "1": [0.5, 0.5]}
    (tmp_path / "probabilities.json").write_text(json.dumps(named))
    assert read_rows(tmp_path, "classification", ("bad", "good")) == CLASSES
    (tmp_path / "probabilities.json").write_text('{"0": {"good": 1.0}}')
    with pytest.raises(DataError, match="'0': expected a probability for each of 'bad', 'good', got"):
        read_rows(tmp_path, "classification", ("bad", "good"))


def test_probabilities_of_labels_that_neither_golds_nor_predictions_have_are_left_out(tmp_path):
    write_rows(tmp_path, "classification", ("bad", "good", "so"), [RowPrediction("0", 1, (0.2, 0.7, 0.1))])
    assert read_rows(tmp_path, "classification", ("good", "bad")) == [RowPrediction("0", 0, (0.7, 0.2))]


@pytest.mark.parametrize(
    ("task", "labels", "rows", "written"),
    [
        ("multilabel", ("a", "b"), [RowPrediction("x", (1, 0)), RowPrediction("y", (0, 0))], {"x": ["a"], "y": []}),
        ("regression", (), [RowPrediction("x", 2.5)], {"x": 2.5}),
        ("swag", ("0", "1", "2"), [RowPrediction("x", 2)], {"x": 2}),
        (
            "answerability",
            ("answer", "no answer"),
            [RowPrediction("x", 0, (0.9, 0.1), 1)],
            {"x": "answer"},
        ),
    ],
)
def test_every_kind_is_written_and_read_back(tmp_path, task, labels, rows, written):
    write_rows(tmp_path, task, labels, rows)
    assert json.loads((tmp_path / "predictions.json").read_text()) == written
    assert read_rows(tmp_path, task, labels) == rows


# File names and labels as public programs that write submissions for gluebenchmark.com have them.
SUBMISSIONS = {
    "cola": ("CoLA.tsv", "0\t1\n1\t0\n"),
    "sst2": ("SST-2.tsv", "0\t1\n1\t0\n"),
    "mrpc": ("MRPC.tsv", "0\t1\n1\t0\n"),
    "qqp": ("QQP.tsv", "0\t1\n1\t0\n"),
    "mnli": ("MNLI-m.tsv", "0\tneutral\n1\tentailment\n"),
    "qnli": ("QNLI.tsv", "0\tnot_entailment\n1\tentailment\n"),
    "rte": ("RTE.tsv", "0\tnot_entailment\n1\tentailment\n"),
    "wnli": ("WNLI.tsv", "0\t1\n1\t0\n"),
}


@pytest.mark.parametrize("task", SUBMISSIONS)
def test_glue_s_files_are_written_and_read_back(tmp_path, task):
    name, rows = SUBMISSIONS[task]
    labels = TASKS[task].labels
    write_rows(tmp_path, task, labels, [replace(row, probabilities=()) for row in CLASSES])
    assert (tmp_path / name).read_text() == f"index\tprediction\n{rows}"
    assert [(row.id, row.label) for row in read_rows(tmp_path / name, task, labels)] == [("0", 1), ("1", 0)]


def test_mnli_s_second_test_set_has_a_file_of_its_own(tmp_path):
    write_rows(tmp_path, "mnli", TASKS["mnli"].labels, [RowPrediction("0", 1, (0.2, 0.5, 0.3))], "mismatched")
    assert names_in(tmp_path) == ["MNLI-mm.tsv", "predictions.json", "probabilities.json"]


def test_scores_of_stsb_stay_in_glue_s_range_in_its_file_alone(tmp_path):
    write_rows(tmp_path, "stsb", (), [RowPrediction("0", 5.25), RowPrediction("1", -0.5), RowPrediction("2", 3.14159)])
    assert (tmp_path / "STS-B.tsv").read_text() == "index\tprediction\n0\t5.000\n1\t0.000\n2\t3.142\n"
    assert [row.label for row in read_rows(tmp_path, "stsb", ())] == [5.25, -0.5, 3.14159]


@pytest.mark.parametrize(
    ("task", "labels", "value", "problem"),
    [
        ("classification", ("1", "2"), "0", "'0' is no label; expected '1', '2'"),
        ("classification", ("a", "b"), ["a"], r"\['a'\] is no label"),
        ("cola", TASKS["cola"].labels, 2, "2 is no label; expected 'unacceptable', 'acceptable'"),
        ("multilabel", ("a", "b"), "a", "expected a list of labels, got 'a'"),
        ("multilabel", ("a", "b"), ["c"], "'c' is no label"),
        ("regression", (), "x", "expected a number, got 'x'"),
        ("regression", (), None, "expected a number, got None"),
        ("regression", (), True, "expected a number, got True"),
    ],
)
def test_wrong_labels_are_refused_with_their_id(tmp_path, task, labels, value, problem):
    path = tmp_path / "found.json"
    path.write_text(json.dumps({"row 7": value}))
    with pytest.raises(DataError, match=rf"found\.json: 'row 7': {problem}"):
        read_rows(path, task, labels)


@pytest.mark.parametrize(
    "content", ["0\t1\n", "index\tprediction\n0\n", "index\tprediction\n0\t1\n0\t1\n", "id\tlabel\n"]
)
def test_a_bad_submission_is_refused_with_its_line(tmp_path, content):
    path = tmp_path / "CoLA.tsv"
    path.write_text(content)
    with pytest.raises(DataError, match=r"CoLA\.tsv: line \d: expected `index` and `prediction`, and each index once"):
        read_rows(path, "cola", TASKS["cola"].labels)


SENTENCES = [Sentence("0", ("Anna", "left"), ("B-PER", "O"), 0), Sentence("1", ("Hm",), ("O",), 0)]
TAGS = [TagPrediction("0", ("B-PER", "I-PER")), TagPrediction("1", ("O",))]


def test_tags_are_written_as_json_and_as_columns_for_conlleval(tmp_path):
    write_tags(tmp_path, SENTENCES, TAGS)
    assert (tmp_path / "predictions.conll").read_text() == "Anna B-PER B-PER\nleft O I-PER\n\nHm O O\n"
    assert read_tags(tmp_path, SENTENCES) == TAGS


def test_tags_of_unlabelled_words_are_written_without_golds(tmp_path):
    write_tags(tmp_path, [Sentence("0", ("Anna", "left"), None, 0)], TAGS[:1])
    assert (tmp_path / "predictions.conll").read_text() == "Anna B-PER\nleft I-PER\n"


@pytest.mark.parametrize(
    ("value", "problem"), [(["O"], "1 tags for 2 words; predict again"), ("O O", "expected a list of tags, got 'O O'")]
)
def test_tags_that_do_not_fit_their_words_are_refused(tmp_path, value, problem):
    path = tmp_path / "found.json"
    path.write_text(json.dumps({"0": value}))
    with pytest.raises(DataError, match=problem):
        read_tags(path, SENTENCES)
