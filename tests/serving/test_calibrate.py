import csv
import json
from io import StringIO

import pytest
from rich.console import Console
from typer.testing import CliRunner

import bertvision
from bertvision.cli import app
from bertvision.data.example import GoldAnswer, Question
from bertvision.data.split import write_squad
from bertvision.data.squad import read_squad
from bertvision.scoring.squad import score_squad2
from bertvision.serving.predict import predict_file
from bertvision.windows.window import cut_windows

CONTEXTS = [
    "the weir was built in 1887 by hannah coyle",
    "the river was by the stone, where the weir was built in 1912",
    "hannah coyle built the weir",
    "the stone was in the river in 1887",
]


@pytest.fixture
def data(tmp_path):
    """Write twelve questions, every third of them without an answer."""
    questions = [
        Question(
            f"q{place}",
            "who built the weir?" if place % 2 else "when was the river built?",
            context,
            (GoldAnswer("the", context.index("the")),) if place % 3 else (),
            f"article {place}",
        )
        for place, context in enumerate(CONTEXTS * 3)
    ]
    write_squad(tmp_path / "questions.json", questions)
    return str(tmp_path / "questions.json")


def calibrate(*arguments):
    return CliRunner().invoke(app, ["calibrate", *map(str, arguments)])


def test_what_calibrate_writes_is_what_load_and_predict_use(make_folder, data, tmp_path):
    folder = make_folder()
    shown = calibrate(folder, "--data", data, "--write", "--json")
    assert shown.exit_code == 0, shown.output
    fitted = json.loads(shown.stdout)["calibration"]
    assert fitted["threshold"] != 0.0
    loaded = bertvision.load(folder, device="cpu").served.calibration
    assert loaded.model_dump() == fitted == json.loads((folder / "calibration.json").read_text())
    predicted = predict_file(folder, data, tmp_path / "answers").predictions
    abstained = [each.text == "" for each in predicted]
    assert abstained == [each.null_odds > fitted["threshold"] for each in predicted]
    official = json.loads((tmp_path / "answers" / "official" / "predictions.json").read_text())
    odds = json.loads((tmp_path / "answers" / "official" / "null_odds.json").read_text())
    assert {name for name, text in official.items() if not text} == {
        name for name, each in odds.items() if each > fitted["official_threshold"]
    }
    asked = predict_file(folder, data, tmp_path / "more", {"answers": {"null_threshold": 1e9}}).predictions
    assert all(each.text for each in asked)


def test_a_least_accuracy_is_kept_with_the_model_or_refused(make_folder, data, monkeypatch):
    folder = make_folder()
    with monkeypatch.context() as found:  # this model is never right
        found.setattr("bertvision.scoring.calibration.threshold_of_accuracy", lambda _answers, accuracy: accuracy)
        shown = calibrate(folder, "--data", data, "--write", "--min-accuracy", "0.8")
    assert shown.exit_code == 0, shown.output
    loaded = bertvision.load(folder, device="cpu").served.calibration
    assert (loaded.threshold, loaded.official_threshold, loaded.min_accuracy) == (0.8, 0.8, 0.8)
    for share, problem in (("0.9", "these 12 questions show"), ("90", "lies between 0 and 1")):
        refused = calibrate(folder, "--data", data, "--min-accuracy", share)
        assert refused.exit_code == 2
        assert problem in refused.output


@pytest.mark.parametrize(("threshold", "abstains"), [(-1e6, True), (1e6, False)])
def test_predict_abstains_by_the_calibration_beside_the_model(make_folder, data, tmp_path, threshold, abstains):
    folder = make_folder()
    (folder / "calibration.json").write_text(json.dumps({"threshold": threshold, "official_threshold": -threshold}))
    predicted = predict_file(folder, data, tmp_path / "answers").predictions
    assert {each.text == "" for each in predicted} == {abstains}
    official = json.loads((tmp_path / "answers" / "official" / "predictions.json").read_text())
    assert {text == "" for text in official.values()} == {not abstains}


def test_without_write_nothing_is_written(make_folder, data):
    folder = make_folder()
    there = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    shown = calibrate(folder, "--data", data)
    assert shown.exit_code == 0, shown.output
    assert "nothing was written" in shown.stdout
    assert "questions are few, and what fits them may be chance; give 100 or more" in shown.stdout
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == there


@pytest.mark.parametrize("threshold", [-2.0, 0.5])  # at the official decoder's 1e6, nothing abstains
def test_predict_and_ask_give_the_same_answers_with_the_same_probabilities(make_folder, data, tmp_path, threshold):
    folder = make_folder()
    fitted = {"threshold": threshold, "temperature": 2.0, "official_threshold": 1e6}
    (folder / "calibration.json").write_text(json.dumps(fitted))
    table = CliRunner().invoke(app, ["predict", str(folder), "--data", data])
    assert table.exit_code == 0, table.output
    rows = list(csv.DictReader(StringIO(table.stdout)))
    for row, question in zip(rows, read_squad(data).examples, strict=True):
        how = ["--model", str(folder), "--top-k", "1", "--json"]
        asked = ["--question", question.text, "--context", question.context]
        shown = json.loads(CliRunner().invoke(app, ["ask", *how, *asked]).stdout)
        answer = (shown[0] if isinstance(shown, list) else shown)["answers"][0]
        assert row["answer"] == answer["text"]
        for name in ("probability", "no_answer_probability"):
            assert float(row[name]) == pytest.approx(answer[name], abs=1e-4)


def test_the_answers_that_are_given_are_scored_beside_the_official_ones(make_folder, data, tmp_path):
    folder = make_folder()
    (folder / "calibration.json").write_text(json.dumps({"threshold": 1.0, "temperature": 2.0}))
    scores = predict_file(folder, data, tmp_path / "out").scores
    given = json.loads((tmp_path / "out" / "predictions.json").read_text())
    reader = bertvision.load(folder, device="cpu")
    questions = read_squad(data).examples
    assert given == {each.id: reader(each.text, each.context).text for each in questions}
    assert scores["reader_f1"] == pytest.approx(score_squad2(questions, given)["f1"])
    official = json.loads((tmp_path / "out" / "official" / "predictions.json").read_text())
    assert scores["f1"] == pytest.approx(score_squad2(questions, official)["f1"])
    assert 0 <= scores["reader_ece"] <= 1


def test_a_bar_on_a_terminal_counts_the_windows_of_all_questions(make_folder, data, monkeypatch):
    terminal = Console(file=StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr("bertvision.cli.console.messages", terminal)
    folder = make_folder()
    served = bertvision.load(folder, device="cpu").served
    windows = cut_windows(read_squad(data).examples, served.tokenizer, served.config.windows, labelled=False)
    assert calibrate(folder, "--data", data, "--quiet").exit_code == 0
    assert terminal.file.getvalue() == ""
    assert calibrate(folder, "--data", data).exit_code == 0
    assert f"{len(windows)}/{len(windows)}" in terminal.file.getvalue()


def test_the_card_says_how_the_model_is_calibrated(make_folder, data, tmp_path):
    bertvision.load(make_folder(), device="cpu").save_pretrained(tmp_path / "saved")
    fitted = json.loads(calibrate(tmp_path / "saved", "--data", data, "--write", "--json").stdout)
    card = (tmp_path / "saved" / "README.md").read_text()
    assert f"| null threshold | {fitted['calibration']['threshold']:.4f} |" in card
    assert f"| temperature | {fitted['calibration']['temperature']:.4f} |" in card


def test_what_has_no_threshold_or_place_is_refused_in_one_line(make_folder, data, tmp_path):
    refused = [
        calibrate(make_folder("rte", ("entailment", "not_entailment"), pair=True), "--data", data),
        calibrate(make_folder("squad1"), "--data", data),
        calibrate("default", "--data", data, "--write"),
        calibrate(tmp_path, "--gold", data, "--write"),
        calibrate(tmp_path),
    ]
    told = [
        "a model of rte",
        "a model of squad1",
        "--write needs a folder of your own; save the model first",
        "with --data FILE",
        "with --data FILE",
    ]
    for each, words in zip(refused, told, strict=True):
        assert each.exit_code != 0
        assert words in each.stderr
        assert len(each.stderr.strip().splitlines()) == 1
