import pytest
from pydantic import ValidationError

from bertvision.data.example import DataConfig, Sentence, Split
from bertvision.data.split import fold
from bertvision.errors import DataError
from bertvision.tasks import read_task


def split_of(documents):
    """One sentence for each number: the document that it is from."""
    sentences = (Sentence(str(place), ("w",), ("O",), number) for place, number in enumerate(documents))
    return Split("all", tuple(sentences), 3, "hash")


@pytest.mark.parametrize("documents", [[0] * 11, list(range(11)), [number // 2 for number in range(22)]])
def test_every_example_is_dev_in_one_fold_and_train_in_the_others(documents):
    whole = split_of(documents)
    seen = []
    for k in range(1, 4):
        train, dev = fold(whole, k, 3)
        assert sorted(train.examples + dev.examples, key=lambda each: int(each.id)) == list(whole.examples)
        seen += dev.examples
    assert sorted(seen, key=lambda each: int(each.id)) == list(whole.examples)


def test_folds_have_the_same_size_but_for_one():
    sizes = [len(fold(split_of([0] * 11), k, 3)[1].examples) for k in range(1, 4)]
    assert sorted(sizes) == [3, 4, 4]


def test_documents_stay_whole_where_there_are_enough():
    train, dev = fold(split_of([number // 4 for number in range(20)]), 2, 5)
    assert {each.document for each in train.examples}.isdisjoint(each.document for each in dev.examples)
    assert len(dev.examples) == 4


def test_folds_are_the_same_each_time_and_named():
    one, other = (fold(split_of([0] * 9), 2, 3) for _ in range(2))
    assert one == other
    assert [split.name for split in one] == ["all, fold 2 of 3, the others", "all, fold 2 of 3"]
    assert [split.dropped for split in one] == [3, 0]  # what was left out of the file is counted once


def test_neighbours_go_to_different_folds_at_random():
    dev = fold(split_of([0] * 100), 1, 2)[1]
    ids = [int(each.id) for each in dev.examples]
    assert ids != list(range(0, 100, 2))
    assert max(ids) > 80 > 20 > min(ids)


def test_more_folds_than_examples_are_refused():
    with pytest.raises(DataError, match="2 examples cannot be parted into 3 folds"):
        fold(split_of([0, 0]), 1, 3)


def test_a_task_with_folds_reads_one_file_alone(tmp_path):
    path = tmp_path / "all.conll"
    path.write_text("".join(f"w{number} B-X\n\n" for number in range(10)))
    tasks = [read_task("ner", DataConfig(train=str(path), folds=5, fold=k)) for k in range(1, 6)]
    assert [len(task.train.examples) for task in tasks] == [8] * 5
    assert {each.id for task in tasks for each in task.dev.examples} == {str(number) for number in range(10)}


@pytest.mark.parametrize("settings", [{"folds": 5, "fold": 6}, {"fold": 2}, {"folds": 1}, {"folds": 3, "fold": 0}])
def test_a_fold_that_is_not_there_is_refused(settings):
    with pytest.raises(ValidationError):
        DataConfig(**settings)
