"""What the quickstart says, of a tiny encoder."""

import json

import pytest
from typer.testing import CliRunner

from bertvision.cli import app

pytestmark = pytest.mark.flow


@pytest.fixture
def quickstart(encoder_folder, squad_file, tmp_path):
    """Run it on eight questions; gives a function of further arguments."""
    data = str(squad_file())
    settings = {
        "encoder": encoder_folder,
        "data.train": data,
        "data.dev": data,
        "tune": "null",
        "finetune.fractions": [1],
        "heads.train": "[learned_pooling]",
        "ensembles": [],
        "windows": "{max_length: 24, stride: 4}",
        "states": "live",
        "device": "cpu",
    }
    overrides = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]

    def call(*arguments):
        command = ["quickstart", "--out", str(tmp_path / "out"), "--quiet", *overrides, *arguments]
        shown = CliRunner().invoke(app, command, env={"COLUMNS": "80"})
        assert shown.exit_code == 0, shown.output
        return shown.stdout

    return call


def test_the_quickstart_ends_with_an_answer_and_what_guessing_would_score(quickstart, questions, tmp_path):
    shown = quickstart()
    table, _, rest = shown.partition("report: ")
    assert "[encoder tuned for 1 epoch]" in table
    assert "Always answering “no answer” would score 12.5 here." in rest  # 1 of 8 questions
    assert f"{questions[0].text} {tmp_path / 'out' / 'heads' / '1' / 'learned_pooling'} answers:" in rest
    assert "probability" in rest
    assert "ask --question" in rest


def test_as_json_it_prints_records_alone(quickstart):
    assert [each["model"] for each in json.loads(quickstart("--json"))] == ["encoder", "learned_pooling"]


def test_without_heads_it_still_names_what_to_do_next(quickstart):
    shown = quickstart("--set", "heads.train=[]")
    assert "answers:" not in shown
    assert "ask --question" in shown
