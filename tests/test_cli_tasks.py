"""Verbs on tasks other than spans: what they print, and how they refuse bad input."""

import json
import re

import pytest
import yaml
from scipy.stats import binomtest
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.records import read_records

ROWS = "text,label\nthe river,wet\nthe stone,dry\nin the river,wet\nby the stone,dry\n"
RTE = "index\tsentence1\tsentence2\tlabel\n" + "".join(
    f"{n}\tthe {word}\twho built\t{label}\n"
    for n, (word, label) in enumerate([("river", "entailment"), ("stone", "not_entailment")] * 3)
)
SWAG = "sent1,sent2,ending0,ending1,label\nhannah,built,the weir,coyle,0\ncoyle,was,1887,in the river,1\n"
CONLL = "hannah B-PER\nbuilt O\n\nthe O\nriver B-LOC\n\n"


@pytest.fixture
def call(tmp_path, encoder_folder, squad_file, monkeypatch):
    """Call the program where there are small files of every kind and a config without a task."""
    monkeypatch.chdir(tmp_path)
    files = {
        "rows.csv": ROWS,
        "dry.csv": "text,label\nthe stone,dry\nby the stone,dry\n",
        "new.csv": ROWS + "the weir,built\n",
        "numbers.csv": "text,label\nthe river,1.5\nthe stone,2\nthe weir,0\n",
        "words.csv": "text,label\nthe river,1.5\nthe stone,two\n",
        "none.csv": "text,label\nthe river,\nthe stone,\n",
        "rte.tsv": RTE,
        "test.tsv": RTE.replace("\tlabel", "").replace("\tentailment", "").replace("\tnot_entailment", ""),
        "swag.csv": SWAG,
        "three.csv": "sent1,sent2,ending0,ending1,ending2,label\nhannah,built,the weir,coyle,1887,2\n",
        "words.conll": CONLL,
        "new.conll": CONLL + "1887 B-DAT\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    squad_file("squad.json")
    settings = {
        "encoder": str(encoder_folder),
        "windows": {"max_length": 24, "stride": 4},
        "finetune": {"fractions": [1], "batch": {"windows": 4}},
        "heads": {"train": ["last_linear"], "batch": {"windows": 4}},
        "device": "cpu",
    }
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(settings))

    def run(*arguments):
        return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80"})

    return run


def settings_of(task, train, dev=None, *more):
    given = (f"task={task}", *([f"data.train={train}", f"data.dev={dev or train}"] if train else []), *more)
    return [part for each in given for part in ("--set", each)]


def train(call, task, data):
    """Train a model of a task; gives its MODEL_DIR."""
    shown = call("run", "tiny.yaml", "--until", "heads", "--out", task, "--quiet", *settings_of(task, data))
    assert shown.exit_code == 0, shown.output
    return f"{task}/heads/1/last_linear"


def refusal(shown):
    assert (shown.exit_code, shown.stdout) == (2, ""), shown.exception or shown.stdout
    assert shown.stderr.startswith("error: ")
    assert len(shown.stderr.splitlines()) == 1
    return shown.stderr


BAD = {
    "sample": (settings_of("rte", None), "sample:train holds questions, and task rte needs RTE/train.tsv"),
    "unknown column": (
        settings_of("classification", "rows.csv", None, "data.columns.text=review"),
        "it has the columns text, label",
    ),
    "layout": (settings_of("rte", "rows.csv"), "it has the columns text, label"),
    "head": (
        settings_of("classification", "rows.csv", None, "heads.train=[cacnn_simple]"),
        "'cacnn_simple' is not for tasks of the kind class",
    ),
    "head for spans": (
        settings_of("ner", "words.conll", None, "heads.train=[ap_glue]"),
        "'ap_glue' is not for tasks of the kind tags",
    ),
    "largest number": (
        settings_of("regression", "numbers.csv", None, "ensembles=[{models: [encoder, last_linear]}]"),
        "numbers have no probabilities for `max`",
    ),
    "no number": (settings_of("regression", "words.csv"), "words.csv: line 3"),
    "new label": (settings_of("classification", "rows.csv", "new.csv"), "'built' is no label; expected 'dry', 'wet'"),
    "new tag": (settings_of("ner", "words.conll", "new.conll"), "B-DAT"),
    "other endings": (settings_of("swag", "swag.csv", "three.csv"), "3 endings"),
    "one label": (settings_of("classification", "dry.csv"), "nothing to tell apart"),
    "tracker": (
        settings_of("classification", "rows.csv", None, "report_to=[mlflow]"),
        "`report_to.0`: Input should be 'tensorboard', 'trackio' or 'wandb'",
    ),
    "squad for rows": (settings_of("classification", "squad.json"), "squad.json"),
    "rows for squad": (settings_of("answerability", "rows.csv"), "rows.csv"),
    "task": (settings_of("mnlli", "rows.csv"), "mnlli"),
    "folds": (settings_of("classification", "rows.csv", None, "data.folds=9"), "cannot be parted into 9 folds"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_of_a_run_is_one_line_and_exit_code_2(call, name):
    more, told = BAD[name]
    assert told in refusal(call("run", "tiny.yaml", "--out", "out", "--quiet", *more))


@pytest.mark.flow
def test_a_table_without_a_dev_file_is_split_and_the_last_lines_say_what_the_score_is_worth(call, tmp_path):
    """Of 24 rows, every fifth is scored, as by `bertvision.train`."""
    (tmp_path / "own.csv").write_text("text,label\n" + "the river,wet\nthe stone,dry\n" * 12)
    shown = call("run", "tiny.yaml", "--out", "out", "--set", "task=classification", "--set", "data.train=own.csv")
    assert shown.exit_code == 0, shown.output
    assert "own.csv: 5 of its 24 rows are dev (fold 1 of 5): scored, and not learned from" in " ".join(
        shown.stderr.split()
    )
    records = {each.model: each for each in read_records(tmp_path / "out")}
    assert {each.data["dev"].examples for each in records.values()} == {5}
    for record in records.values():
        exact = binomtest(round(record.scores["accuracy"] / 20), 5).proportion_ci()
        assert record.intervals["accuracy"] == pytest.approx((100 * exact.low, 100 * exact.high))
        if record.kind != "baseline":  # five rows cannot tell models apart: 5 to 0 is chance in 2 of 32 cases
            assert record.behind_best[0] <= 0 <= record.behind_best[1]
    said = " ".join(shown.stdout.split())
    name, score, low, high = re.search(
        r"(\w+): accuracy ([\d.]+) on 5 examples \(95% interval ([\d.]+) to ([\d.]+)\), tied with", said
    ).groups()
    best = records[name]
    assert [float(low), float(high)] == pytest.approx(best.intervals["accuracy"], abs=0.05)
    assert float(score) == pytest.approx(best.scores["accuracy"], abs=0.05)
    assert best.kind in ("control", "encoder")  # the last layer alone
    assert f"best model: heads/1/{name}" in said or f"best model: {name}/1" in said
    assert "dev. Ties go to the last layer" in (tmp_path / "out" / "report.md").read_text()


def test_a_dev_file_without_one_to_learn_from_is_refused(call):
    told = refusal(call("run", "tiny.yaml", "--set", "task=rte", "--set", "data.dev=rte.tsv"))
    assert "data.dev is rte.tsv, and data.train names no file to learn from" in told


@pytest.mark.flow
def test_a_model_refuses_files_of_another_task(call):
    model = train(call, "rte", "rte.tsv")
    assert "squad.json" in refusal(call("predict", model, "--data", "squad.json", "--out", "answers"))
    assert "it has the columns text, label" in refusal(call("predict", model, "--data", "rows.csv", "--out", "answers"))
    assert "questions, and task rte" in refusal(call("predict", model, "--data", "sample:dev", "--out", "answers"))
    call("predict", model, "--data", "rte.tsv", "--out", "answers")
    for arguments in (
        ("analyze", "answers", "--gold", "squad.json"),
        ("compare", "answers", "answers", "--gold", "rte.tsv"),
        ("ensemble", "answers", "rte", "--data", "squad.json", "--out", "both"),
        ("analyze", model, "--layers", "--gold", "squad.json"),
    ):
        refusal(call(*arguments))


@pytest.mark.flow
def test_a_model_of_choices_refuses_rows_with_more_of_them(call):
    model = train(call, "swag", "swag.csv")
    assert "3 endings" in refusal(call("predict", model, "--data", "three.csv", "--out", "answers"))


@pytest.mark.flow
def test_a_run_prints_a_baseline_and_its_model_answers_files_with_and_without_labels(call):
    shown = call("run", "tiny.yaml", "--out", "rte", "--quiet", *settings_of("rte", "rte.tsv"))
    assert shown.exit_code == 0, shown.output
    assert re.search(r"\[baseline\]\nmajority +50\.0", shown.stdout)
    assert max(len(line) for line in shown.stdout.splitlines()) <= 80
    model = "rte/heads/1/last_linear"
    labelled = json.loads(call("predict", model, "--data", "rte.tsv", "--out", "one", "--json", "--quiet").stdout)
    assert (labelled["examples"], set(labelled["scores"])) == (6, {"accuracy"})
    unlabelled = call("predict", model, "--data", "test.tsv", "--out", "other", "--quiet")
    assert unlabelled.stdout == "6 examples; predictions in other/predictions.json\n"
