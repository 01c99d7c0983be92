"""What a tiny run of every kind left when the files beside this were made, within what machines may differ by.

`tools/golden.py` compares two trees to the bit. Where a change is meant, `GOLDEN=write pytest tests/golden_records`
writes the files again, and their difference is part of the change.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path, PurePath
from typing import Any

import golden
import pytest
from golden_experiments import EXPERIMENTS, build_encoder, judging_commands
from typer.testing import CliRunner

import bertvision
from bertvision.cli import app
from bertvision.run_folder import FILES

KINDS = ("spans", "answerable", "classes", "labels", "numbers", "choices", "tags")
VERBS = ("score", "analyze", "against", "compare", "ensemble")
HERE = Path(__file__).parent


def quick(settings: dict[str, Any]) -> dict[str, Any]:
    """Return an experiment's settings for one epoch, one seed and two heads; readers answer every question."""
    heads = {**settings["heads"], "train": settings["heads"]["train"][:2], "epochs": 1}
    finetune = {**settings["finetune"], "fractions": [1]}
    answers = {**settings.get("answers", {}), "null_threshold": 100.0}
    return {**settings, "finetune": finetune, "heads": heads, "answers": answers, "ensembles": [], "seeds": [1]}


def layout_of(value: Any, name: str = "") -> Iterator[str]:
    """Give the keys below a value, those of all items of a list as one."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield f"{name}.{key}"
            yield from layout_of(each, f"{name}.{key}")
    elif isinstance(value, list):
        for each in value:
            yield from layout_of(each, f"{name}.*")


def make(kind: str, folder: Path) -> dict[str, Any]:
    """Run a kind's experiment and what judges it by the command line; return what is compared."""
    experiment = EXPERIMENTS[kind]
    experiment.write(folder)
    settings = golden.in_words_of(quick(experiment.settings["settings"]), is_new=True)
    given = experiment.commands["run"].values
    commands = judging_commands(given["data"], given["other"].rpartition("/")[2], "1")
    printed: dict[str, Any] = {}
    with chdir(folder):
        bertvision.run(bertvision.build_experiment(settings), Path("out"))
        for verb in VERBS:
            line = golden.command_line(*commands[verb], is_new=True)
            ended = CliRunner().invoke(app, line.split(), env={"COLUMNS": "80"})
            assert ended.exit_code == 0, (line, ended.output)
            printed[verb] = ended.stdout
    answers = {
        path.parent.name: json.loads(path.read_text()) for path in folder.glob("out/predictions/*/*/predictions.json")
    }
    return {
        "files": sorted(str(path.relative_to(folder)) for path in (folder / "out").rglob("*") if path.is_file()),
        "layouts": {verb: sorted(set(layout_of(json.loads(printed[verb])))) for verb in VERBS},
        "scores": {verb: numbers_of(json.loads(printed[verb])) for verb in ("score", "ensemble")},
        "answers": answers,
    }


def numbers_of(printed: dict[str, Any]) -> dict[str, float]:
    """Return the scores that a command printed."""
    return {key: value for key, value in printed.get("scores", printed).items() if value is not None}


@pytest.fixture(scope="module", params=KINDS)
def made(request, tmp_path_factory) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a kind's run leaves now, and what it left."""
    folder = tmp_path_factory.mktemp(request.param)
    build_encoder(folder / "tiny")
    found, path = make(request.param, folder), HERE / f"{request.param}.json"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return found, json.loads(path.read_text())


def test_a_run_leaves_the_files_that_it_left(made):
    found, golden_record = made
    assert found["files"] == golden_record["files"]


def test_every_file_that_a_run_leaves_stands_in_the_table_of_its_folder(made):
    patterns = [re.sub("[A-Z]{4,}", "*", folder) + name for folder, names in FILES.items() for name in names]
    left = [path.removeprefix("out/") for path in made[0]["files"]]
    assert [path for path in left if not any(PurePath(path).match(pattern) for pattern in patterns)] == []


def test_what_judges_a_run_prints_the_json_that_it_printed(made):
    found, golden_record = made
    assert found["layouts"] == golden_record["layouts"]


def test_a_run_answers_as_it_did(made):
    found, golden_record = made
    assert found["answers"].keys() == golden_record["answers"].keys()
    for model, answers in found["answers"].items():
        expected = golden_record["answers"][model]
        if isinstance(next(iter(answers.values())), float):
            assert answers == pytest.approx(expected, rel=1e-4)
        else:
            assert answers == expected


def test_scores_are_what_they_were(made):
    found, golden_record = made
    for verb, scores in found["scores"].items():
        assert scores == pytest.approx(golden_record["scores"][verb], rel=1e-4, abs=1e-3)
