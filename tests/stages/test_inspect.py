import json

import pytest
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.stages.inspect import inspect_file


@pytest.fixture
def inspect(saved_encoder, tmp_path):
    """Return a function of (task, file's name, its text): what training on it would mean, in windows of 8 tokens."""

    def run(task, name, text, *overrides):
        (tmp_path / name).write_text(text)
        windows = ("windows.max_length=8", "windows.stride=1")
        return inspect_file(str(tmp_path / name), str(saved_encoder), task, (*windows, *overrides))

    return run


def shown(found):
    return dict(found.as_tables()[0].rows)


def test_rows_are_counted_by_class_and_those_that_lose_their_end(inspect):
    # With [CLS] and [SEP]: 4, 8 (which just fits) and 9 tokens, the last one cut to 8.
    texts = ["the river", "in the river by the weir", "in the river by the stone weir"]
    found = inspect("classification", "rows.csv", f"text,label\n{texts[0]},wet\n{texts[1]},wet\n{texts[2]},dry\n")
    assert (found.examples, found.windows, found.examples_with_several_windows) == (3, 3, 0)
    assert found.labels == {"dry": 1, "wet": 2}
    assert found.longer_than_a_window == 1
    assert found.mean_tokens == pytest.approx((4 + 8 + 8) / 3)
    assert found.padding == {"{tokens: 16384}": pytest.approx(4 / 24), "{windows: 4}": pytest.approx(4 / 24)}
    assert shown(found)["labelled wet"] == "2 (66.7%)"
    assert (found.contexts, found.windows_without_answer) == (None, None)
    assert not any("no answer" in what or what == "contexts" for what in shown(found))


def test_labels_that_differ_in_case_are_told(inspect):
    found = inspect("classification", "case.csv", "text,label\nthe river,wet\nthe weir,Wet\nthe stone,dry\n")
    assert len(found.notes) == 1
    assert "'Wet' and 'wet'" in found.notes[0]
    assert inspect("ner", "tags.conll", "hannah B-PER\nbuilt O\n").notes == []


def test_labels_of_sets_are_shares_of_the_examples(inspect):
    text = 'text,label\nthe river,"a,b"\nthe stone,a\nthe weir,\nin 1887,\n'
    found = inspect("multilabel", "sets.csv", text)
    assert found.labels == {"a": 2, "b": 1}
    assert shown(found)["labelled a"] == "2 (50.0%)"
    none = inspect("multilabel", "none.csv", "text,label\nthe river,\nthe weir,\n", "data.labels=[a]")
    assert shown(none)["labelled a"] == "0 (0.0%)"


def test_numbers_have_no_labels_to_count(inspect):
    found = inspect("regression", "numbers.csv", "text,label\nthe river,1\nthe weir,0.5\n")
    assert (found.examples, found.labels) == (2, {})


def test_choices_have_a_window_for_every_ending_and_lose_their_end_once(inspect):
    header = "sent1,sent2,ending0,ending1,ending2,label\n"
    # With three special tokens: 7, 7 and 7 tokens; then 9, 10 and 8, two of which are too long.
    rows = "hannah,built,the river,the weir,the stone,1\nwho,was in the,river by,river by 1887,weir,1\n"
    found = inspect("swag", "swag.csv", header + rows)
    assert (found.examples, found.windows, found.examples_with_several_windows) == (2, 6, 0)
    assert found.labels == {"0": 0, "1": 2, "2": 0}
    assert found.longer_than_a_window == 1


def test_tags_are_counted_by_word_and_long_sentences_have_several_windows(inspect):
    long = [("hannah", "B-PER"), ("coyle", "I-PER"), *[("was", "O")] * 6]  # six fit into a window
    short = [("river", "B-LOC")]
    text = "\n".join("".join(f"{word} {tag}\n" for word, tag in each) for each in (long, short))
    found = inspect("ner", "words.conll", text)
    assert (found.examples, found.examples_with_several_windows, found.longer_than_a_window) == (2, 1, 0)
    assert found.windows == 3
    assert found.labels == {"O": 6, "B-LOC": 1, "I-LOC": 0, "B-PER": 1, "I-PER": 1}
    assert shown(found)["labelled O"] == "6 (66.7%)"


@pytest.mark.parametrize("task", ["squad2", "answerability"])
def test_questions_are_counted_with_their_contexts_and_windows_without_answer(saved_encoder, squad_file, task):
    overrides = ("windows.max_length=16", "windows.stride=2")
    found = inspect_file(str(squad_file()), str(saved_encoder), task, overrides)
    assert (found.examples, found.contexts, found.longer_than_a_window) == (8, 8, 0)
    assert found.labels == {"answer": 7, "no answer": 1}
    assert found.examples_with_several_windows > 0
    # An answer is in at least one window of its question, the question without one has nothing but windows without.
    assert found.windows - found.windows_without_answer >= 7
    assert found.windows_without_answer >= 1
    assert set(found.lengths) == {"window", "question and special tokens"}


def test_the_verb_takes_a_task_and_prints_its_counts_within_80_columns(saved_encoder, tmp_path):
    (tmp_path / "rte.tsv").write_text("index\tsentence1\tsentence2\tlabel\n0\tthe river\tthe weir\tentailment\n")
    arguments = ["show", "data", str(tmp_path / "rte.tsv"), "--task", "rte", "--encoder", str(saved_encoder)]
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert (found["task"], found["labels"]) == ("rte", {"entailment": 1, "not_entailment": 0})
    lines = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"}).stdout.splitlines()
    assert any(line.split() == ["labelled", "not_entailment", "0", "(0.0%)"] for line in lines)
    assert max(map(len, lines[1:])) <= 80
