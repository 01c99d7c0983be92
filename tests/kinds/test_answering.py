import json

import numpy as np
import pytest

from bertvision.data.example import ChoiceRow, Sentence, Split, TextRow
from bertvision.kinds.kind import Answering
from bertvision.predictions.prediction import AnswerConfig
from bertvision.tasks import Task, open_answering
from bertvision.windows.window import WindowConfig

WINDOWS = WindowConfig(max_length=16, stride=4)


@pytest.fixture
def ask(tokenizer):
    """Return a function of (task's name, examples, labels): the split, ready to be answered."""

    def make(name, examples, labels=(), part="", windows=WINDOWS, answers=None):
        split = Split("examples", tuple(examples), 0, None)
        task = Task(name, split, split, tuple(labels))
        return open_answering(task, split, tokenizer, windows, answers or AnswerConfig(), part=part)

    return make


def logits(*rows):
    return np.array(rows, dtype=np.float32)


def read(path):
    return json.loads(path.read_text())


def rows_of(*labels):
    return [TextRow(f"r{n}", ("the weir",), label) for n, label in enumerate(labels)]


def test_classes_are_the_largest_logits_and_written_by_name(ask, tmp_path):
    asked = ask("mnli", rows_of(0, 1, 2), ("entailment", "neutral", "contradiction"))
    found = logits((1, 0, 0), (3, 2, 1), (0, 0, 9))
    answers = asked.answer(found)
    asked.write(tmp_path, answers, found)
    assert asked.score(answers, found) == {"accuracy": pytest.approx(200 / 3)}
    named = {"r0": "entailment", "r1": "entailment", "r2": "contradiction"}
    assert read(tmp_path / "predictions.json") == named
    lines = [f"{key}\t{name}\n" for key, name in named.items()]
    assert (tmp_path / "MNLI-m.tsv").read_text() == "".join(["index\tprediction\n", *lines])
    assert isinstance(asked, Answering)


@pytest.mark.parametrize(("part", "file"), [("mismatched", "MNLI-mm.tsv"), ("held_out", None)])
def test_a_further_split_has_glues_file_for_it_or_none(ask, tmp_path, part, file):
    asked = ask("mnli", rows_of(0), ("entailment", "neutral", "contradiction"), part)
    found = logits((1, 0, 0))
    asked.write(tmp_path, asked.answer(found), found)
    assert {path.name for path in tmp_path.glob("*.tsv")} == ({file} if file else set())


def test_label_sets_hold_every_label_above_a_half(ask):
    asked = ask("multilabel", rows_of((1, 0), (1, 1)), ("a", "b"))
    found = logits((0.1, -0.1), (-5, 5))
    assert [each.label for each in asked.answer(found)] == [(1, 0), (0, 1)]
    assert asked.score(asked.answer(found), found)["exact"] == 50


def test_numbers_are_the_logits_themselves(ask):
    asked = ask("regression", rows_of(1.0, 2.0))
    found = logits((1.5,), (1.0,))
    assert [each.label for each in asked.answer(found)] == [1.5, 1.0]
    assert asked.score(asked.answer(found), found)["mae"] == 0.75


def test_an_ending_is_the_best_of_its_row_and_rows_are_combined_alone(ask):
    rows = [ChoiceRow("a", "hannah", ("the weir", "the river"), 0), ChoiceRow("b", "coyle", ("1887", "stone"), 0)]
    asked = ask("swag", rows, ("0", "1"))
    one, other = logits((5,), (4,), (-3,), (-1,)), logits((0,), (0,), (50,), (0,))
    assert len(asked.windows) == 4
    assert [each.label for each in asked.answer(one)] == [0, 1]
    both = asked.answer(asked.combine([one, other], "mean", None))
    sure = 1 / (1 + np.exp(-1))  # of the first ending of the first row, for the first model
    assert both[0].probabilities == pytest.approx(((sure + 0.5) / 2, (1.5 - sure) / 2))
    assert [each.label for each in both] == [0, 0]


def test_a_question_without_answer_has_none_in_any_window(ask, questions, tmp_path):
    asked = ask("answerability", questions, ("answer", "no answer"))
    counts = np.bincount([window.example for window in asked.windows])
    assert counts.max() > 1
    last = np.cumsum(counts) - 1
    found = np.tile(logits((0, 1)), (len(asked.windows), 1))  # nothing anywhere
    found[last[1]] = (1, 0)  # but in the last window of the second question
    answers = asked.answer(found)
    assert [each.label for each in answers] == [1, 0, 1, 1, 1, 1, 1, 1]
    assert [each.paper_label for each in answers] == [1, int(counts[1] > 1), 1, 1, 1, 1, 1, 1]
    assert asked.score(answers, found)["accuracy"] == 25  # the second question has an answer and the third has none


def test_a_word_has_the_tag_of_its_first_piece_in_the_window_that_is_read_for_it(ask, tokenizer, tmp_path):
    words = ("hannah", "built", "xyz", *["the"] * 14, "coyle")  # xyz is three pieces, and the row needs two windows
    tags = ("B-PER", "O", "O", *["O"] * 14, "B-PER")
    sentences = [Sentence("0", words, tags, 0), Sentence("1", ("coyle",), ("B-PER",), 0)]
    asked = ask("ner", sentences, ("O", "B-PER", "I-PER"))
    assert [window.example for window in asked.windows] == [0, 0, 1]
    names = tokenizer.convert_ids_to_tokens([int(each) for window in asked.windows for each in window.ids])
    columns = [1 if name in ("hannah", "coyle") else 2 if name.startswith("##") else 0 for name in names]
    found = np.eye(3, dtype=np.float32)[columns]
    answers = asked.answer(found)
    assert [each.tags for each in answers] == [tags, ("B-PER",)]
    assert asked.score(answers, found)["f1"] == 100
    asked.write(tmp_path, answers, found)
    assert read(tmp_path / "predictions.json")["1"] == ["B-PER"]
    np.testing.assert_allclose(np.exp(asked.combine([found, found], "mean", None)).sum(axis=1), 1, rtol=1e-5)
