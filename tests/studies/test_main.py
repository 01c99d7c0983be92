"""`python -m studies`: what is printed, written and refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from studies.__main__ import app


def call(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments], env={"COLUMNS": "80"})


def test_studies_are_listed_with_what_they_take_and_what_is_wrong_with_the_papers():
    shown = call("list", "--seeds", 2)
    assert shown.exit_code == 0
    text = " ".join(shown.stdout.split())
    assert "span_tables: Tables 1, 2 and A.3: twenty heads after 0.3 of an epoch and after one" in text
    takes = (
        "takes: 1 run, 2 seeds: 2 epochs of tuning, 4 passes of heads, over the paper's 131,911 windows of 171 tokens"
    )
    assert takes in text
    assert "wrong: The printed rows are rotated." in text
    assert "cannot be run here: needs pre-training; tools/pretrain_study.py runs" in text
    assert "metric: official EM and F1 at the null threshold 0." in text
    assert "published: mnli: accuracy 84.6, mismatched_accuracy 83.4; qqp: f1 71.2; qnli: accuracy 90.5;" in text
    assert "published: encoder after 3: f1 88.5, exact_match 80.8" in text


def test_studies_are_listed_without_torch():
    code = "import sys; sys.modules |= {'torch': None, 'jaxtyping': None}; from studies.__main__ import app; "
    code += "app(['list'])"
    root = Path(__file__).parents[2]
    known = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    done = subprocess.run([sys.executable, "-c", code], env=known, capture_output=True, text=True, check=True)
    assert "span_tables: Tables 1, 2 and A.3" in done.stdout


def test_a_dry_run_shows_every_run_and_makes_nothing(saved_encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ("run", "less_data", "--dry-run", "--encoder", saved_encoder, "--data", tmp_path)
    shown = call(*given)
    assert shown.exit_code == 0
    assert shown.stdout.count("run: less_data-share_") == 10
    assert "4 heads on 10% of the data" in " ".join(shown.stdout.split())
    assert "missing:" in shown.stdout
    assert list(tmp_path.iterdir()) == []
    plan = json.loads(call(*given, "--json").stdout)
    assert plan["takes"]["runs"] == 10
    assert plan["published"][0]["scores"] == {"paper_v1_f1": 77.7, "paper_v1_exact": 72.8}


def test_a_study_prints_its_results_and_verdicts(squad_file, saved_encoder, tmp_path):
    data, out = squad_file("train-v2.0.json").parent, tmp_path / "out"
    squad_file("dev-v2.0.json")
    small = ["windows.max_length=24", "windows.stride=4", "finetune.batch.windows=4", "finetune.fractions=[1, 2]"]
    changes = [each for setting in small for each in ("--set", setting)]
    given = (
        "run",
        "span_curve",
        "--encoder",
        saved_encoder,
        "--data",
        data,
        "--seeds",
        1,
        "--out",
        out,
        *changes,
    )
    shown = call(*given, "--set", "device=cpu", "--quiet")
    assert shown.exit_code == 0, shown.output
    assert "cannot tell: Two epochs are better than one." in shown.stdout
    assert "untested: The peak is at two epochs; six are below." in shown.stdout
    assert {"study.json", "study.md", "report.html"} <= {path.name for path in (out / "span_curve").iterdir()}


def test_every_study_is_built_by_a_check():
    shown = call("list", "--check")
    assert shown.exit_code == 0
    assert shown.stdout.endswith("all can be built\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "span_curves"), "did you mean `span_curve`"),
        (
            ("run", "two_epochs"),
            "data/train-v2.0.json: no such file; give the folder of two_epochs's files as --data",
        ),
        (("run", "bert_pretraining"), "cannot be run here; it needs pre-training"),
        (("report", "nowhere", "--out", "y"), "no such folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = call(*arguments)
    assert shown.exit_code == 2
    assert told in shown.stderr
    assert shown.stderr.startswith("error: ")
    assert len(shown.stderr.splitlines()) == 1
