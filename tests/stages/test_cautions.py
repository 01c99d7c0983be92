"""Warnings where a run cannot learn."""

import csv

import pytest
import torch

from bertvision.experiment import build_experiment
from bertvision.stages.prepare import alike_labels
from bertvision.stages.run import run

WORDS = ("the weir was built", "who built the river", "stone by the river", "hannah was in the stone")


class Said:
    """A progress that notes what it is told, and shows no bars."""

    def __init__(self, silent):
        self.said, self.bar = [], silent.bar

    def say(self, text):
        self.said.append(text)


@pytest.fixture
def warnings_of(encoder_folder, tmp_path):
    from bertvision.progress import SILENT

    def call(labels, dev_end=" ?", dev_labels=None, names=("new", "old"), **settings):
        for name, end, given in (("train.csv", "", labels), ("dev.csv", dev_end, dev_labels or labels)):
            rows = [[text + end, label] for label, text in zip(given, WORDS * (len(labels) // 4), strict=True)]
            with (tmp_path / name).open("w", newline="") as file:
                csv.writer(file).writerows([["text", "label"], *rows])
        data = {"train": str(tmp_path / "train.csv"), "dev": str(tmp_path / "dev.csv"), "labels": list(names)}
        whole = {"task": "classification", "data": data, "encoder": str(encoder_folder), "device": "cpu", **settings}
        progress = Said(SILENT)
        records = run(build_experiment({**whole, "windows": {"max_length": 16}}), tmp_path / "out", progress)
        return [text for text in progress.said if text.startswith(("warning: ", "tip: "))], records

    return call


FEW = {"train": ["last_linear"], "epochs": 1, "batch": {"windows": 4}, "lr": 1e-9, "baseline": False}


def test_few_steps_and_one_answer_are_told_with_a_cure(warnings_of):
    said, records = warnings_of(["old", "old", "old", "new"] * 3, finetune={"fractions": [1]}, heads=FEW)
    assert said[0].startswith("warning: fine-tuning takes 1 step in all")
    assert "finetune.min_steps" in said[0]
    assert said[1].startswith("warning: heads take 3 steps in all")
    assert "heads.min_steps" in said[1]
    same = next(text for text in said if text.startswith("warning: last_linear: "))
    assert "the same answer, old, and has learned nothing" in same
    noted = next(record for record in records if record.model == "last_linear")
    assert any("the same answer, old" in note for note in noted.notes)


def test_one_class_in_train_is_told(warnings_of):
    heads = {"train": ["last_regression"]}
    said, _ = warnings_of(["old"] * 8, finetune={"fractions": []}, heads=heads)
    assert said == ["warning: all training examples are 'old', so nothing can be told apart; add some of the others"]


def test_examples_of_dev_that_are_in_train_are_told(warnings_of):
    said, _ = warnings_of(
        ["old", "new"] * 4, dev_end="", finetune={"fractions": []}, heads={"train": ["last_regression"]}
    )
    assert len(said) == 1
    assert said[0].startswith("warning: 8 of the 8 examples of dev (")
    assert "are in train too" in said[0]


@pytest.mark.parametrize(
    ("has_bf16", "precision", "fractions"),
    [(True, "auto", [1]), (True, "float32", [1]), (True, "auto", [0]), (False, "auto", [1])],
)
def test_where_a_cpu_has_bf16_a_run_that_tunes_says_that_it_is_faster(
    has_bf16, precision, fractions, warnings_of, monkeypatch
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx512_bf16": has_bf16}, raising=False)
    said, _ = warnings_of(["old", "new"] * 4, finetune={"fractions": fractions}, heads=FEW, precision=precision)
    tips = [text for text in said if text.startswith("tip: ")]
    assert tips == ["tip: `precision=bf16` makes training faster on this CPU"] * (
        (has_bf16, precision, fractions) == (True, "auto", [1])
    )


def test_a_run_by_default_on_few_rows_says_nothing(warnings_of):
    said, records = warnings_of(["old", "new", "old", "new"] * 4, dev_end="")
    assert all("are in train too" in text for text in said)
    assert "regression" in [record.model for record in records]
    assert records[-1].model == "last_regression"
    assert {record.fraction for record in records} == {None}


def test_labels_that_differ_in_case_or_spaces_are_told_and_others_are_not():
    labels = ["Very good", "verygood", "good", "Good", "bad", "+", "-"]
    assert alike_labels(labels) == [
        "labels that differ only in how they are written are learned apart: 'Very good' and 'verygood', "
        "'good' and 'Good'; write them alike where they mean the same"
    ]
    assert alike_labels(["good", "goood", "1", "10", "B-PER", "I-PER", "O", "nan", "inf"]) == []


def test_labels_that_are_the_same_number_are_told():
    (told,) = alike_labels(["1", "1.0", "2", "02", "3.5", "30"])
    assert "'1' and '1.0', '2' and '02';" in told


def test_labels_of_dev_that_train_lacks_are_told(warnings_of):
    heads = {"train": ["last_regression"]}
    said, _ = warnings_of(
        ["old", "new"] * 4,
        dev_labels=["old", "Old"] * 4,
        names=["new", "old", "Old"],
        finetune={"fractions": []},
        heads=heads,
    )
    assert [text[:70] for text in said[:2]] == [  # what follows is of the trained head
        "warning: labels that differ only in how they are written are learned a",
        "warning: dev has labels that no training example has: 'Old' (4); they ",
    ]


def test_rows_that_lose_their_end_are_told_with_how_much(warnings_of):
    end = " " + "stone " * 20  # 16 tokens are read
    said, _ = warnings_of(["old", "new"] * 4, dev_end=end, finetune={"fractions": []}, heads=FEW)
    (told,) = [text for text in said if "longer than" in text]
    assert told.startswith("warning: dev: 8 of 8 rows are longer than the 16 tokens that are read")
    assert told.endswith("raise windows.max_length if the encoder reads more")
