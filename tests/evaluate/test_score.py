"""`score`, `compare` and `analyze` of predictions that lie in a run folder: the run says what they are of."""

import hashlib
import json

import pytest
from typer.testing import CliRunner

import bertvision
from bertvision.cli import app
from bertvision.data.example import ColumnsConfig, DataConfig
from bertvision.data.split import hold_out
from bertvision.records import DataFile, write_record
from bertvision.tasks import read_task

ROWS = "review;stars\nGood soup;5\nCold, and late;1\nFine;5\nDull;1\n"
RIGHT = {"0": "5", "1": "1", "2": "5", "3": "1"}
GOOD, BAD = RIGHT | {"3": "5"}, RIGHT | {"0": "1", "2": "1", "3": "5"}  # three and one of four are right


@pytest.fixture
def run(make_record, tmp_path, monkeypatch):
    """A run folder, `out`, of an own table with two heads and what they predicted; gives a function of its settings."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dev.csv").write_text(ROWS)

    def make(place="out", task="classification", dev="dev.csv", seed=1, **data):
        data.setdefault("columns", ColumnsConfig(text="review", label="stars"))
        for row, found in (("bad", BAD), ("good", GOOD)):
            folder = tmp_path / place / ("" if seed == 1 else f"seeds/{seed}") / "predictions" / "given" / row
            folder.mkdir(parents=True)
            (folder / "predictions.json").write_text(json.dumps(found))
            digest = hashlib.sha256((tmp_path / "dev.csv").read_bytes()).hexdigest()
            described = DataFile(name=dev, sha256=digest, examples=4, dropped=0, windows=4)
            record = make_record(model=row, kind="head", fraction=None, seed=seed, task=task).model_copy(
                update={
                    "scores": {"accuracy": 100 * sum(found[key] == RIGHT[key] for key in RIGHT) / 4},
                    "data": {"dev": described},
                    "config": {"seeds": [1, 2], "data": DataConfig(dev=dev, **data).model_dump(mode="json")},
                }
            )
            write_record(tmp_path / place / "records", record)
        return tmp_path / place

    return make


def call(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def scores_of(*arguments):
    shown = call("score", *arguments)
    assert (shown.exit_code, shown.stderr) == (0, ""), shown.output
    return json.loads(shown.stdout)


def refusal(*arguments):
    shown = call(*arguments)
    assert (shown.exit_code, shown.stdout) == (2, ""), shown.output
    return shown.stderr


@pytest.mark.parametrize("seed", [1, 2])
def test_a_runs_predictions_are_scored_without_task_columns_and_gold_file(run, seed):
    out = run(seed=seed)
    place = out / ("" if seed == 1 else "seeds/2") / "predictions" / "given"
    assert scores_of("--predictions", place / "good")["accuracy"] == 75
    assert scores_of("--predictions", place / "bad" / "predictions.json")["accuracy"] == 25


def test_a_run_folder_stands_for_its_best_model(run):
    assert scores_of("--predictions", run())["accuracy"] == 75
    shown = call("analyze", "out")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("4 rows\nA: out/predictions/given/good\n")


def test_score_takes_a_run_folder_alone_as_other_verbs_do(run):
    out = run()
    assert scores_of(out) == scores_of("--predictions", out)
    assert "give --predictions: a file of them, or a run's folder" in refusal("score", out / "nowhere")


def test_predictions_that_are_not_there_are_told_as_such(run):
    told = refusal("compare", run(), "nowhere")
    assert told.startswith("error: nowhere: cannot be read (No such file or directory); give OUT/predictions")
    assert "scored on" not in told


def test_a_folder_that_is_not_there_is_called_missing(tmp_path):
    told = refusal("analyze", tmp_path / "nowhere")
    assert told == f"error: {tmp_path}/nowhere: no such file or folder; give a run folder, or predictions\n"


def test_the_folder_of_a_run_that_was_stopped_is_called_unfinished(tmp_path):
    (tmp_path / "experiment.json").write_text("{}")
    assert refusal("score", tmp_path).startswith(f"error: {tmp_path}: its run is not finished; the same")


def test_a_folder_of_several_runs_names_them(run):
    run("several/one"), run("several/two")
    assert refusal("analyze", "several") == "error: several: holds the runs one, two; give one, such as several/one\n"


def test_of_equal_results_a_run_folder_stands_for_the_one_that_predict_takes(run):
    out = run()
    (out / "predictions" / "given" / "bad" / "predictions.json").write_text(json.dumps(GOOD))
    (out / "records" / "sha256.json").unlink()
    for name in ("bad", "good"):
        record = next((out / "records").glob(f"{name}-*"))
        record.write_text(record.read_text().replace('"accuracy": 25.0', '"accuracy": 75.0'))
    assert "A: out/predictions/given/bad\n" in call("analyze", "out").stdout  # no model: the first
    (out / "heads" / "given" / "good").mkdir(parents=True)
    (out / "heads" / "given" / "good" / "model.json").write_text("{}")
    assert "A: out/predictions/given/good\n" in call("analyze", "out").stdout


@pytest.mark.parametrize("seed", [1, 2])
def test_a_model_of_a_run_stands_for_its_predictions_of_dev(run, seed):
    root = run(seed=seed) / ("" if seed == 1 else "seeds/2")
    assert scores_of("--predictions", root / "heads/given/bad")["accuracy"] == 25
    (root / "predictions/given/good").rename(root / "predictions/given/encoder")
    (root / "heads/given/good").mkdir(parents=True)
    assert "give --gold, the file" in refusal("score", "--predictions", root / "heads/given/good")  # which left none
    given = ["classification", "--gold", "dev.csv", "--set", "data.columns={text: review, label: stars}"]
    assert scores_of(*given, "--predictions", root / "encoder/given")["accuracy"] == 75


def test_from_python_places_may_be_texts(run):
    out, place = run(), "out/predictions/given/bad"
    assert str(bertvision.analyze("out").names["A"]) == "out/predictions/given/good"
    assert bertvision.compare(place, "out").differences[0].difference == 50
    assert bertvision.score(None, None, place).scores["accuracy"] == 25
    assert len(bertvision.read_records("out")) == 2
    assert bertvision.write_report([], str(out / "report")).is_file()


def test_two_runs_are_compared_without_task_columns_and_gold_file(run):
    out = run()
    shown = call("compare", out / "predictions/given/bad", out / "predictions/given/good", "--json")
    found = json.loads(shown.stdout)
    assert (found["task"], found["examples"]) == ("classification", 4)
    assert found["differences"][0] | {"low": 0, "high": 0, "p_value": 0} == {
        "metric": "accuracy",
        "a": 25,
        "b": 75,
        "difference": 50,
        "low": 0,
        "high": 0,
        "p_value": 0,
    }
    same = call("compare", out, run("other"), "--json")
    assert json.loads(same.stdout)["differences"][0]["difference"] == 0


def test_a_fold_of_the_training_file_is_the_gold_where_the_run_had_no_other(run, tmp_path):
    (tmp_path / "train.csv").write_text(
        "review;stars\n" + "".join(f"text {n};{5 if n % 2 else 1}\n" for n in range(10))
    )
    out = run(train="train.csv", folds=2, fold=1)
    settings = DataConfig(train="train.csv", folds=2, fold=1, columns=ColumnsConfig(text="review", label="stars"))
    ids = [row.id for row in read_task("classification", settings).dev.examples]
    assert len(ids) == 5
    found = {each: "5" if int(each) % 2 else "1" for each in ids} | {ids[0]: "1" if int(ids[0]) % 2 else "5"}
    (out / "predictions/given/good/predictions.json").write_text(json.dumps(found))
    assert scores_of("--predictions", out / "predictions/given/good")["accuracy"] == 80


@pytest.mark.parametrize("held_out", [0.5, "apart.csv"])
def test_held_out_rows_are_found_in_the_training_file_or_in_their_own(run, tmp_path, held_out):
    for name, rows in (("train", 8), ("apart", 4)):
        lines = (f"{name} {n};{5 if n % 2 else 1}\n" for n in range(rows))
        (tmp_path / f"{name}.csv").write_text("review;stars\n" + "".join(lines))
    out = run(train="train.csv", held_out=held_out)
    settings = DataConfig(train="train.csv", dev="dev.csv", columns=ColumnsConfig(text="review", label="stars"))
    train = read_task("classification", settings).train
    ids = [row.id for row in hold_out(train, 0.5)[1].examples] if held_out == 0.5 else ["0", "1", "2", "3"]
    assert len(ids) == 4
    folder = out / "predictions_held_out/given/good"
    folder.mkdir(parents=True)
    (out / "held_out.json").write_text(json.dumps(ids))
    found = {each: "5" if int(each) % 2 else "1" for each in ids} | {ids[0]: "1" if int(ids[0]) % 2 else "5"}
    (folder / "predictions.json").write_text(json.dumps(found))
    assert scores_of("--predictions", folder)["accuracy"] == 75


def test_what_is_given_goes_before_what_the_run_says(run, tmp_path):
    out = run()
    (tmp_path / "gold.csv").write_text("text,label\na,1\nb,1\nc,1\nd,1\n")
    columns = ["--set", "data.columns={text: text, label: label}"]
    given = ["--gold", "gold.csv", "--predictions", out / "predictions/given/bad", *columns]
    assert scores_of(*given)["accuracy"] == 75
    assert scores_of("regression", *given)["mae"] == 1  # 1, 1, 1 and 5 where 1 is right


def test_a_gold_file_that_has_changed_or_gone_is_refused(run, tmp_path):
    out = run()
    (tmp_path / "dev.csv").write_text(ROWS + "New;5\n")
    told = refusal("score", "--predictions", out)
    assert "dev.csv: is no longer the file that the run was scored on; give --gold, the file" in told
    (tmp_path / "dev.csv").unlink()
    told = refusal("analyze", out)
    assert "dev.csv: cannot be read (No such file or directory)" in told
    assert "give --gold, the file" in told


def test_predictions_outside_a_run_need_a_gold_file_and_are_of_squad2(tmp_path):
    (tmp_path / "predictions.json").write_text("{}")
    assert "lies in no run folder, which would name its file; give --gold, the file" in refusal("analyze", tmp_path)
    assert "different tasks" not in refusal("compare", tmp_path, tmp_path, "--gold", "nowhere.json")


def test_runs_of_two_tasks_are_not_compared(run):
    told = refusal("compare", run("one"), run("other", task="sst2"))
    assert "the predictions are of different tasks, classification and sst2; give --task" in told


def test_a_run_without_predictions_says_so(run):
    out = run()
    for path in out.glob("predictions/given/*/predictions.json"):
        path.unlink()
    assert "its run left no predictions" in refusal("score", "--predictions", out)


def test_an_ensemble_of_a_runs_predictions_needs_neither_task_nor_columns(run, tmp_path):
    out = run(task="regression")
    for row, stars in (("bad", 2.0), ("good", 40_000.0)):
        folder = out / "predictions" / "given" / row
        (folder / "predictions.json").write_text(json.dumps(dict.fromkeys(RIGHT, stars)))
    members = [out / "heads" / "given" / "bad", out / "predictions" / "given" / "good"]  # a model stands for its own
    shown = call("ensemble", *members, "--data", "dev.csv", "--how", "mean", "--out", tmp_path / "both")
    assert shown.exit_code == 0, shown.output
    assert json.loads((tmp_path / "both" / "predictions.json").read_text()) == dict.fromkeys(RIGHT, 20_001.0)
    assert ["ensemble", "19,998", "19,998"] in [line.split() for line in shown.stdout.splitlines()]
