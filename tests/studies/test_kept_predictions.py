"""A study's kept predictions, scored again by `python -m studies rescore`."""

import json
import lzma

import pytest
from typer.testing import CliRunner

from bertvision.records import write_record
from studies.__main__ import app

# Of the three questions below, q1 is right, q2 shares one of two words, and q3 has no answer.
GOLDS = {"q1": "stone", "q2": "old weir", "q3": None}
CONTEXT = "The old weir is of stone."


@pytest.fixture
def gold(tmp_path):
    answers = {
        key: [] if text is None else [{"text": text, "answer_start": CONTEXT.index(text)}]
        for key, text in GOLDS.items()
    }
    asked = [
        {"id": key, "question": "What?", "is_impossible": not found, "answers": found} for key, found in answers.items()
    ]
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": [{"title": "weir", "paragraphs": [{"context": CONTEXT, "qas": asked}]}]}))
    return path


def keep(folder, make_record, **values):
    recorded = {"exact": 12.5, "f1": 34.5, "best_f1": 56.5}
    write_record(
        folder / "records", make_record(model="encoder", kind="encoder", fraction=1.0, seed=1, scores=recorded)
    )
    line = {"model": "encoder", "fraction": 1.0, "seed": 1, **values}
    (folder / "predictions.jsonl.xz").write_bytes(lzma.compress(json.dumps(line).encode()))


def rescore(*arguments):
    return CliRunner().invoke(app, ["rescore", *map(str, arguments)], env={"COLUMNS": "120"})


def test_kept_predictions_are_scored_beside_what_was_recorded(tmp_path, make_record, gold):
    # EM: 1 of 3. F1: q1 1, q2 2/3 (one of one word right, one of two found), q3 0. At odds of 2, "no answer" to q3: 1.
    keep(
        tmp_path,
        make_record,
        predictions=["stone", "weir", "is"],
        best_spans=["stone", "weir", "is"],
        null_odds=[0, 1, 3],
    )
    shown = rescore(tmp_path, "--gold", gold, "--out", tmp_path / "files")
    assert shown.exit_code == 0, shown.output
    numbers = ["33.33", "12.50", "55.56", "34.50", "88.89", "56.50"]
    assert shown.stdout.split()[-9:] == ["encoder", "1", "1", *numbers]
    files = tmp_path / "files" / "encoder-1-seed1"
    assert json.loads((files / "predictions.json").read_text()) == {"q1": "stone", "q2": "weir", "q3": "is"}
    assert json.loads((files / "null_odds.json").read_text()) == {"q1": 0, "q2": 1, "q3": 3}


def test_predictions_of_other_questions_are_refused(tmp_path, make_record, gold):
    keep(tmp_path, make_record, predictions=["stone", "weir"])
    shown = rescore(tmp_path, "--gold", gold)
    assert shown.exit_code == 2
    assert "3 questions, expected the 2 that" in shown.stderr


def test_a_folder_without_kept_predictions_is_refused(tmp_path, gold):
    shown = rescore(tmp_path, "--gold", gold)
    assert shown.exit_code == 2
    assert "predictions.jsonl.xz" in shown.stderr
