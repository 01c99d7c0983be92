import pytest

from bertvision.records import Mistake, MistakesRecord
from bertvision.report.page import write_report
from bertvision.report.results import Evidence
from bertvision.report.tables import confusion_tables, example_lists


def make_mistakes(record, **more):
    def shown(split, text):
        return Mistake(split=split, id="7", texts={"text": text}, gold="no", predicted="yes", probability=0.914)

    fields = {
        **{
            key: getattr(record, key)
            for key in ("experiment", "variant", "task", "model", "position", "fraction", "seed")
        },
        "examples": 300,
        "wrong": 82,
        "errors": [shown("dev", f"error {number} <b>") for number in range(12)],
        "checked": {"dev": 300},
        "suspects": {"dev": 9},
        "mislabelled": [shown("dev", "odd row of dev")],
    }
    return MistakesRecord(**{**fields, **more})


@pytest.fixture
def classes(make_record):
    confusions = {"no": {"no": 110, "yes": 38}, "yes": {"no": 50, "yes": 1102}}
    return [
        make_record(task="sst2", model="good", scores={"accuracy": 80.0}, confusions=confusions, position=1),
        make_record(task="sst2", model="bad", scores={"accuracy": 70.0}, position=2),
    ]


def test_a_confusion_matrix_is_that_of_the_best_model(classes):
    (table,) = confusion_tables(Evidence(classes))
    assert table.title == "Confusion matrix of good on dev"
    assert table.header == ("true", "predicted no", "predicted yes")
    assert table.texts == (("no", "110", "38"), ("yes", "50", "1,102"))


def test_of_many_classes_the_commonest_confusions_are_listed(make_record):
    names = [f"class {number}" for number in range(13)]
    confusions = {name: {name: 50, names[0]: number} for number, name in enumerate(names)}
    record = make_record(task="classification", scores={"accuracy": 80.0}, confusions=confusions)
    (table,) = confusion_tables(Evidence([record]))
    assert table.texts[0] == ("class 12", "class 0", "12")
    assert len(table.rows) == 12


def test_records_without_confusions_have_no_matrix(make_record):
    assert confusion_tables(Evidence([make_record()])) == []


def test_training_rows_that_look_mislabelled_come_before_those_of_dev(classes):
    row = Mistake(
        split="train", id="3", texts={"text": "odd row of train"}, gold="no", predicted="yes", probability=0.9
    )
    checked = {"checked": {"dev": 300, "train": 64}, "suspects": {"dev": 9, "train": 1}, "mislabelled": [row]}
    errors, odd = example_lists(classes, [make_mistakes(classes[0]), make_mistakes(classes[1], **checked)])
    assert errors.title == "Errors of good to read"
    assert errors.note == "82 of 300 examples of dev are wrong; here are 12, the surest first."
    assert odd.note.startswith("Of 64 examples of train 1 have a label that bad, fitted without them,")
    assert [each.texts["text"] for each in odd.examples] == ["odd row of train"]
    assert [each.texts["text"] for each in example_lists(classes, [make_mistakes(classes[0])])[1].examples] == [
        "odd row of dev"
    ]


def test_a_label_that_a_model_is_52_percent_sure_against_is_not_called_confidently_contradicted(classes):
    row = Mistake(split="dev", id="3", texts={"text": "odd row"}, gold="no", predicted="yes", probability=0.52)
    (odd,) = example_lists(classes, [make_mistakes(classes[0], errors=[], mislabelled=[row], suspects={"dev": 1})])
    assert "a label that good, which has not seen them, doubts" in odd.note
    assert "confident" not in odd.note


def test_without_the_run_folders_predictions_nothing_is_listed(classes, make_record):
    assert example_lists(classes, []) == []
    assert example_lists(classes, [make_mistakes(make_record(task="sst2", seed=2))]) == []


def test_every_format_has_the_examples_escaped(classes, tmp_path):
    page = write_report(classes, tmp_path, mistakes=[make_mistakes(classes[0])]).read_text(encoding="utf-8")
    assert "error 11 &lt;b&gt;" in page
    assert "true: no; predicted: yes, 91% sure; dev 7" in page
    assert "<summary>2 more</summary>" in page
    assert "1. error 0 &lt;b&gt; (true: no; predicted: yes, 91% sure; dev 7)" in (tmp_path / "report.md").read_text()
    assert "error 0" not in (tmp_path / "tables.tex").read_text()
