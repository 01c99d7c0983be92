"""`bertvision score` for all tasks but spans, which test_cli_score.py has."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.tasks import TASKS

SST2 = "sentence\tlabel\nfine\t1\nbad\t0\ngood\t1\ndull\t0\n"
CONLL = "Anna B-PER\nBerg I-PER\n\nLeeds B-LOC\n"
SQUAD = {
    "data": [
        {
            "title": "Weir",
            "paragraphs": [
                {
                    "context": "Built in 1887.",
                    "qas": [
                        {"id": "when", "question": "When?", "answers": [{"text": "1887", "answer_start": 9}]},
                        {"id": "why", "question": "Why?", "answers": []},
                    ],
                }
            ],
        }
    ]
}


@pytest.fixture
def score(tmp_path):
    def run(task, gold, predictions, *more, gold_name="gold.tsv", name="predictions.json"):
        (tmp_path / gold_name).write_text(gold if isinstance(gold, str) else json.dumps(gold))
        (tmp_path / name).write_text(predictions if isinstance(predictions, str) else json.dumps(predictions))
        files = ["--gold", str(tmp_path / gold_name), "--predictions", str(tmp_path / name)]
        return CliRunner().invoke(app, ["score", task, *files, *more])

    return run


def scores_of(result):
    assert (result.exit_code, result.stderr) == (0, ""), result.stderr
    return json.loads(result.stdout)


def refusal(result):
    assert (result.exit_code, result.stdout) == (2, ""), result.exception
    assert result.stderr.count("\n") == 1
    return result.stderr.removesuffix("\n")


@pytest.mark.parametrize("spelled", [("positive", "negative"), ("1", "0"), (1, 0)])
def test_a_class_may_be_predicted_by_name_or_number(score, spelled):
    good, bad = spelled
    found = scores_of(score("sst2", SST2, {"0": good, "1": bad, "2": bad, "3": bad}))
    assert found == {"accuracy": 75.0}


def test_a_submission_of_glue_is_scored(score):
    found = "index\tprediction\n0\t1\n1\t1\n2\t1\n3\t0\n"
    assert scores_of(score("sst2", SST2, found, name="SST-2.tsv")) == {"accuracy": 75.0}


@pytest.mark.parametrize(
    ("task", "gold", "gold_name", "predictions", "scores"),
    [
        ("cola", "a\t1\t\tx\na\t0\t*\ty\n", "dev.tsv", {"0": 1, "1": 0}, {"matthews": 100.0}),
        (
            "stsb",
            "sentence1\tsentence2\tscore\na\tb\t1\na\tb\t2\na\tb\t4\n",
            "dev.tsv",
            {"0": 0.5, "1": 1, "2": 2},
            {"pearson": 100.0, "spearman": 100.0},
        ),
        ("swag", '{"ctx": "a", "endings": ["b", "c"], "label": "1"}\n', "dev.jsonl", {"0": 1}, {"accuracy": 100.0}),
        (
            "ner",
            CONLL,
            "dev.conll",
            {"0": ["B-PER", "I-PER"], "1": ["O"]},
            {"precision": 100.0, "recall": 50.0, "f1": 200 / 3, "accuracy": 200 / 3},
        ),
        ("answerability", SQUAD, "dev.json", {"when": "answer", "why": "no answer"}, {"accuracy": 100.0, "f1": 100.0}),
        (
            "multilabel",
            "text,label\na,x;y\nb,\n",
            "dev.csv",
            {"0": ["x"], "1": ["z"]},  # z is a label of train alone
            {"micro_f1": 50.0, "macro_f1": 100 / 3, "exact": 0.0},
        ),
        ("regression", "text,label\na,1\nb,3\n", "dev.csv", {"0": 2, "1": 2}, {"rmse": 1.0, "mae": 1.0}),
    ],
)
def test_every_kind_is_scored(score, task, gold, gold_name, predictions, scores):
    more = ("--set", "data.label_separator=;") if task == "multilabel" else ()
    assert scores_of(score(task, gold, predictions, *more, gold_name=gold_name)) == pytest.approx(scores)


def test_own_tables_are_read_with_settings(score):
    gold = "review,stars\nfine,5\nbad,1\nok,5\n"
    more = ("--set", "data.columns={text: review, label: stars}")
    found = scores_of(score("classification", gold, {"0": "5", "1": 3, "2": "5"}, *more, gold_name="dev.csv"))
    # 3 is a class of train that no row has: F1 of 5 is 1, of 1 and of 3 it is 0.
    assert found == pytest.approx({"accuracy": 200 / 3, "macro_f1": 100 / 3})


@pytest.mark.parametrize(
    ("predictions", "problem"),
    [
        ({"0": 1}, "no prediction for 3 of 4 examples, such as '1'"),
        ({"0": 1, "1": 1, "2": 1, "3": 1, "4": 1}, "a prediction for '4', which the examples do not have"),
        ({"0": "great"}, "'0': 'great' is no label; expected 'negative', 'positive'"),
        ("nothing", "not JSON"),
        ([1], "expected an object with question ids as keys, got list"),
    ],
)
def test_bad_predictions_end_in_one_line(score, predictions, problem):
    assert problem in refusal(score("sst2", SST2, predictions))


def test_a_bad_gold_row_ends_in_one_line_without_advice_that_score_cannot_follow(score):
    line = refusal(score("sst2", SST2 + "odd\n", {"0": 1}))
    assert line.endswith("gold.tsv: line 6: 1 fields, and the header names 2; fix the line")


def test_null_odds_have_no_place_elsewhere(score, tmp_path):
    line = refusal(score("sst2", SST2, {"0": 1}, "--null-odds", str(tmp_path / "odds.json")))
    assert line == "error: sst2 has no null odds; leave --null-odds out or score squad2"


def test_an_unknown_setting_ends_in_one_line(score):
    assert "unknown key `data.colums`; did you mean `columns`?" in refusal(
        score("sst2", SST2, {"0": 1}, "--set", "data.colums=x")
    )


def test_help_names_every_task():
    shown = CliRunner().invoke(app, ["score", "--help"], env={"COLUMNS": "200"}).stdout
    assert [name for name in TASKS if name not in shown] == []


def test_scoring_needs_no_torch():
    code = "import sys, bertvision.evaluate.score; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
