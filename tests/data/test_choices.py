import datasets
import pytest

from bertvision.data.example import ChoiceRow, DataConfig
from bertvision.data.rows import read_choices
from bertvision.errors import DataError
from bertvision.tasks import read_task

SWAG = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
    '0,a,1,"He stands, tall. He","He stands, tall.",He,gold,runs.,sits.,eats.,"sings, loud.",3\n'
    "1,b,2,She waves. She,She waves.,She,gold,a.,b.,c.,d.,0\n"
)
HELLASWAG = (
    '{"ind": 24, "ctx": "A man sits. he", "endings": ["runs.", "eats.", "sings.", "sleeps."], "label": "3"}\n'
    '{"ind": 92, "ctx": "A dog runs. it", "endings": ["a.", "b.", "c.", "d."], "label": "0"}\n'
)
FIRST = ChoiceRow("0", "He stands, tall.", ("He runs.", "He sits.", "He eats.", "He sings, loud."), 3)


@pytest.fixture
def write(tmp_path):
    def to_file(name, content):
        (tmp_path / name).write_text(content)
        return str(tmp_path / name)

    return to_file


def test_swag_is_read_with_the_second_sentence_s_beginning_before_each_ending(write):
    split = read_choices(write("train.csv", SWAG))
    assert split.examples[0] == FIRST
    assert [row.label for row in split.examples] == [3, 0]


def test_hellaswag_is_read_with_its_labels_as_text(write):
    split = read_choices(write("val.jsonl", HELLASWAG))
    assert split.examples[0] == ChoiceRow("0", "A man sits. he", ("runs.", "eats.", "sings.", "sleeps."), 3)


def test_the_hubs_swag_is_read(monkeypatch):
    row = {"sent1": "He stands.", "sent2": "He", "ending0": "runs.", "ending1": "sits.", "label": 1, "startphrase": "x"}
    calls = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *named, split: calls.append((*named, split)) or [row])
    task = read_task("swag", DataConfig(train="allenai/swag", dev="allenai/swag"))
    assert task.train.examples == (ChoiceRow("0", "He stands.", ("He runs.", "He sits."), 1),)
    assert (task.kind.name, task.labels) == ("choice", ("0", "1"))
    assert calls == [("allenai/swag", "regular", "train"), ("allenai/swag", "regular", "validation")]


def test_one_file_gives_train_and_dev(write):
    source = write("val.jsonl", HELLASWAG)
    task = read_task("swag", DataConfig(train=f"{source}[:1]", dev=f"{source}[1:]"))
    assert [row.id for split in (task.train, task.dev) for row in split.examples] == ["0", "1"]
    assert task.train.name == f"{source}[:1]"
    assert task.train.sha256 == task.dev.sha256


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"3"', '"4"', "line 1: column `label` is '4'; give the right ending's number, 0 to 3"),
        ('"3"', '"-1"', "line 1: column `label` is '-1'; give"),
        ('"3"', '""', "line 1: column `label` is empty"),
        (', "d."', "", "line 2: 3 endings, and the rows before have 4; give as many"),
        ('["runs.", "eats.", "sings.", "sleeps."]', '"runs."', "line 1: column `endings` has type str; give a list"),
        ('["runs.", "eats.", "sings.", "sleeps."]', '["runs."]', "line 1: 1 ending; give at least two"),
        ('"runs."', '" "', "line 1: column `endings` is empty"),
        ('"A man sits. he"', "null", "line 1: column `ctx` is empty"),
    ],
)
def test_a_bad_row_is_refused_and_can_be_dropped(write, old, new, problem):
    source = write("val.jsonl", HELLASWAG.replace(old, new))
    with pytest.raises(DataError) as caught:
        read_choices(source)
    assert str(caught.value).startswith(f"{source}: {problem}")
    assert read_choices(source, on_bad="drop").dropped == 1


def test_rows_without_labels_are_read_for_prediction(write):
    split = read_choices(write("test.jsonl", HELLASWAG.replace('"3"', '""')), needs_labels=False)
    assert [row.label for row in split.examples] == [None, 0]
    split = read_choices(write("test.csv", SWAG.replace(",label", ",other")), needs_labels=False)
    assert [row.label for row in split.examples] == [None, None]


def test_another_table_is_refused_with_the_columns_to_give(write):
    with pytest.raises(DataError, match=r"it has the columns text, label; give SWAG's columns \(sent1"):
        read_choices(write("train.csv", "text,label\nx,1\n"))
