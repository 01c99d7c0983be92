import json

import pytest

from bertvision.predictions.files import read_prediction_folder, write_predictions
from bertvision.predictions.prediction import Candidate, Prediction

WITH_NULL = [
    Prediction("q1", "", "1887", 1.5, (Candidate("", 3.5, 3.0, 0.75), Candidate("1887", 2.0, 3.0, 0.25))),
    Prediction("q2", "by", "by", 0.0, (Candidate("by", 1.0, 1.0, 0.5), Candidate("", 1.0, 1.0, 0.5))),
    Prediction("q0", "caf\u00e9", "caf\u00e9", -2.0, (Candidate("caf\u00e9", 2.0, 3.0, 1.0),)),
]
WITHOUT_NULL = [Prediction("q0", "weir", "weir", None, (Candidate("weir", 2.0, 3.0, 1.0),))]


def read(folder):
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.iterdir())}


def test_the_files_are_laid_out_as_run_qas(tmp_path):
    write_predictions(tmp_path, WITH_NULL)
    assert read(tmp_path) == {
        "predictions.json": {"q1": "", "q2": "by", "q0": "caf\u00e9"},
        "nbest_predictions.json": {
            "q1": [
                {"text": "", "probability": 0.75, "start_logit": 3.5, "end_logit": 3.0},
                {"text": "1887", "probability": 0.25, "start_logit": 2.0, "end_logit": 3.0},
            ],
            "q2": [
                {"text": "by", "probability": 0.5, "start_logit": 1.0, "end_logit": 1.0},
                {"text": "", "probability": 0.5, "start_logit": 1.0, "end_logit": 1.0},
            ],
            "q0": [{"text": "caf\u00e9", "probability": 1.0, "start_logit": 2.0, "end_logit": 3.0}],
        },
        "null_odds.json": {"q1": 1.5, "q2": 0.0, "q0": -2.0},
        "best_spans.json": {"q1": "1887", "q2": "by", "q0": "caf\u00e9"},  # ours: what a sweep of thresholds needs
    }


def test_questions_stand_in_the_order_of_the_split(tmp_path):
    write_predictions(tmp_path, WITH_NULL)
    assert [list(content) for content in read(tmp_path).values()] == [["q1", "q2", "q0"]] * 4


def test_a_task_without_null_has_no_null_odds(tmp_path):
    write_predictions(tmp_path, WITHOUT_NULL)
    assert read(tmp_path) == {
        "predictions.json": {"q0": "weir"},
        "nbest_predictions.json": {
            "q0": [{"text": "weir", "probability": 1.0, "start_logit": 2.0, "end_logit": 3.0}],
        },
    }


@pytest.mark.parametrize(
    "text", ["caf\u00e9", "\u65e5\u672c\u8a9e", 'a "quoted" \\ text', "two\nlines", "\u2028", "\x07"]
)
def test_any_text_comes_back_as_it_was(tmp_path, text):
    write_predictions(tmp_path, [Prediction(text, text, text, 0.1, (Candidate(text, 0.1, 0.2, 1 / 3),))])
    read_back = read(tmp_path)
    assert read_back["predictions.json"] == {text: text}
    assert read_back["nbest_predictions.json"][text][0]["probability"] == 1 / 3


def test_the_same_predictions_give_the_same_bytes(tmp_path):
    write_predictions(tmp_path / "one", WITH_NULL)
    write_predictions(tmp_path / "two", WITH_NULL)
    for name in read(tmp_path / "one"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_question_without_candidates_has_an_empty_row(tmp_path):
    first, second, third = WITH_NULL
    write_predictions(tmp_path, [first, Prediction("none", "", "", 0.5, ()), second, third])
    nbest = read(tmp_path)["nbest_predictions.json"]
    assert {question: len(candidates) for question, candidates in nbest.items()} == {
        "q1": 2,
        "none": 0,
        "q2": 2,
        "q0": 1,
    }
    assert nbest["q2"][0]["text"] == "by"


def test_every_number_is_written_as_json_does_and_read_back_the_same(tmp_path):
    numbers = [0.1, 1 / 3, -0.0, 5e-324, 1e-5, 9.9e-5, 1e16, 1e22, -123.456]
    candidates = tuple(Candidate("a", number, -number, 0.5) for number in numbers)
    write_predictions(tmp_path, [Prediction("q", "a", "a", None, candidates)])
    assert read_prediction_folder(tmp_path).candidates == {"q": candidates}
    (row,) = read(tmp_path)["nbest_predictions.json"].values()
    assert f'"q": {json.dumps(row)}\n' in (tmp_path / "nbest_predictions.json").read_text()


def test_a_folder_is_read_back_as_it_was_written(tmp_path):
    write_predictions(tmp_path, WITH_NULL)
    folder = read_prediction_folder(tmp_path)
    assert folder.answers == {"q1": "", "q2": "by", "q0": "caf\u00e9"}
    assert folder.best_spans == {"q1": "1887", "q2": "by", "q0": "caf\u00e9"}
    assert folder.null_odds == {"q1": 1.5, "q2": 0.0, "q0": -2.0}
    assert folder.candidates == {each.question_id: each.candidates for each in WITH_NULL}


def test_candidates_that_are_not_asked_for_are_not_read(tmp_path):
    write_predictions(tmp_path, WITH_NULL)
    (tmp_path / "nbest_predictions.json").write_text("no JSON")
    assert read_prediction_folder(tmp_path, with_candidates=False).candidates is None


def test_what_a_folder_lacks_is_none(tmp_path):
    write_predictions(tmp_path, WITHOUT_NULL)
    (tmp_path / "nbest_predictions.json").unlink()
    folder = read_prediction_folder(tmp_path)
    assert (folder.null_odds, folder.best_spans, folder.candidates) == (None, None, None)
    assert folder.answers == {"q0": "weir"}
