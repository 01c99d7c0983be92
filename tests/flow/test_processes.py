"""Two processes do a run together: what comes out is one process's, and a run goes on after one of them was killed."""

import json
import subprocess
import sys

import numpy as np
import pytest
from faults import content_of
from safetensors.numpy import load_file
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.errors import TrainingError
from bertvision.experiment import build_experiment
from bertvision.stages.run import run
from bertvision.training.distributed import launch

pytestmark = pytest.mark.flow
PLACES = ("river", "weir", "stone")
TEXTS = [
    act.format(place) for act in ("the {} was built", "hannah was in the {}", "by the {}, coyle") for place in PLACES
]
# Runs experiments in turn, and kills the process of one rank before a step of some head.
SCRIPT = """
import json, os, signal, sys
from pathlib import Path
from bertvision.experiment import build_experiment
from bertvision.stages.run import run
from bertvision.training.loop import Group

killed, taken, step = os.environ.get("KILLED_RANK"), [], Group.step

def counted(group, batches):
    taken.append(group)
    if os.environ["RANK"] == killed and len(taken) == int(os.environ["KILLED_AT"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return step(group, batches)

Group.step = counted
for name, settings in json.loads(Path(sys.argv[1]).read_text()).items():
    records = run(build_experiment(settings), Path(sys.argv[2]) / name)
    assert bool(records) == (os.environ["RANK"] == "0")
"""


def write_rows(folder, name, rows):
    (folder / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(folder / name)


def experiments(folder, encoder):
    """Every way of training, on batches that two processes cannot share evenly; without dropout, which differs."""
    qas = [{"id": f"q{n}", "question": "when?", "answers": [{"text": "1887", "answer_start": 22}]} for n in range(7)]
    context = "the weir was built in 1887" + " by the river and the stone weir" * 3
    questions = folder / "questions.json"
    questions.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": qas}]}]}))
    classes = write_rows(folder, "classes.jsonl", [{"text": text, "label": text.split()[-1]} for text in TEXTS])
    turned = [[*PLACES[turn:], *PLACES[:turn]] for turn in (0, 1, 2, 0, 1)]
    choices = [{"ctx": "hannah built the", "endings": each, "label": each.index("stone")} for each in turned]
    sentences = [("hannah", "B-PER"), ("coyle", "I-PER"), *[("built", "O")] * 4, ("river", "B-LOC")]
    parts = [sentences[:stop] for stop in (1, 3, 4, 6, 7)]
    (folder / "words.conll").write_text("\n".join("".join(f"{w} {t}\n" for w, t in part) for part in parts))
    shared = {"encoder": str(encoder), "device": "cpu", "windows": {"max_length": 24, "stride": 4}}
    tune = {"fractions": [0.5, 2], "batch": {"windows": 3}, "min_steps": 0, "min_rows": 0, "dropout": 0.0, "lr": 1e-3}
    heads = {"train": ["learned_pooling", "last_linear"], "batch": {"windows": 3}, "epochs": 2, "min_steps": 0}

    def experiment(task, data, **more):
        given = {"task": task, "data": {"train": str(data), "dev": str(data)}, "finetune": tune, "heads": heads}
        return {**shared, **given, **more, "name": task}

    accumulated = {**tune, "batch": {"tokens": 64}, "accumulate": 2, "gradient_checkpointing": True}
    contrast = {**tune, "objective": "contrastive", "pairs_per_epoch": 10, "fractions": [1], "batch": {"windows": 6}}
    return {
        "spans": experiment("squad2", questions, finetune=accumulated, states="memory"),
        "tags": experiment("ner", folder / "words.conll", states="live"),
        "classes": experiment("classification", classes, finetune={"fractions": []}),
        "contrast": experiment("classification", classes, finetune=contrast),
        "choices": experiment("swag", write_rows(folder, "choices.jsonl", choices), states="memory"),
        "frozen": experiment("squad2", questions, tune={"train": "top:1", "train_norms": False}, states="live"),
    }


@pytest.fixture(scope="module")
def start(saved_encoder, tmp_path_factory):
    """Return a function that runs experiments in two processes, with further variables of the environment."""
    folder = tmp_path_factory.mktemp("processes")
    (folder / "script.py").write_text(SCRIPT)

    def start(settings, out, **environment):
        (folder / "settings.json").write_text(json.dumps(settings))
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {"OMP_NUM_THREADS": "1", "BERTVISION_COMMIT": "0" * 40, **environment}.items():
                patch.setenv(name, value)
            return launch(2, [sys.executable, *map(str, (folder / "script.py", folder / "settings.json", out))])

    return start


def numbers_of(folder):
    """Return what models compute, by file: logits, or probabilities."""
    logits = {path: load_file(path)["logits"] for path in folder.rglob("logits.safetensors")}
    shares = {path: json.loads(path.read_text()) for path in folder.rglob("probabilities.json")}
    listed = {path: [list(each.values()) for each in found.values()] for path, found in shares.items()}
    return {str(path.relative_to(folder)): values for path, values in (logits | listed).items()}


def test_what_two_processes_train_computes_what_one_process_trains(start, saved_encoder, tmp_path, monkeypatch):
    monkeypatch.setenv("BERTVISION_COMMIT", "0" * 40)
    settings = experiments(tmp_path, saved_encoder)
    assert start(settings, tmp_path / "two") == 0
    for name, own in settings.items():
        one, two = tmp_path / "one" / name, tmp_path / "two" / name
        run(build_experiment(own), one)
        assert {path.relative_to(one) for path in one.rglob("*")} == {path.relative_to(two) for path in two.rglob("*")}
        for path in one.rglob("predictions.json"):
            assert json.loads(path.read_text()) == json.loads((two / path.relative_to(one)).read_text())
        expected, found = numbers_of(one), numbers_of(two)
        assert expected or name == "tags"
        for path, values in expected.items():
            # Adam divides by the size of gradients, so that what rounds differently where parts are added up moves the
            # smallest of them: by 1e-6 or 5e-5, as the CPU has it. Shares that are 5% wrong move logits by 1e-2.
            np.testing.assert_allclose(found[path], values, rtol=0, atol=5e-4, err_msg=f"{name} {path}")
        lines = [len((folder / "training.jsonl").read_text().splitlines()) for folder in (one, two)]
        assert lines[0] == lines[1]


def test_a_run_goes_on_after_any_process_was_killed_and_ends_the_same(start, saving_always, tmp_path):
    settings = {"run": saving_always}  # with dropout
    assert start(settings, tmp_path / "whole") == 0
    for rank, step, stage in (("1", "2", "finetune"), ("0", "4", "heads-0.5")):
        with pytest.raises(TrainingError, match=rf"process {rank} of 2 was killed \(signal 9\)"):
            start(settings, tmp_path / "out", KILLED_RANK=rank, KILLED_AT=step)
        assert (tmp_path / "out" / "run" / "unfinished" / stage / "progress").exists()
    assert start(settings, tmp_path / "out") == 0
    assert content_of(tmp_path / "out") == content_of(tmp_path / "whole")


def test_commands_that_train_go_on_from_each_other_in_several_processes(saving_always, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    config, out = tmp_path / "tiny.yaml", tmp_path / "out"
    config.write_text(json.dumps(saving_always))

    def call(*command, ending=()):
        given = [sys.executable, "-m", *command, config, "--out", out, "--json", "--quiet", *ending]
        return json.loads(subprocess.run([*map(str, given)], capture_output=True, text=True, check=True).stdout)

    # Each prints its results once, and goes on from what the one before it made.
    heads = [str(out / "heads" / fraction / "last_linear") for fraction in ("0.5", "1")]
    assert (
        call("bertvision", "run", ending=("--until", "heads", "--processes", "2")) == heads
    )  # tunes the encoder first
    # With --multi_gpu Accelerate starts two processes; what they run on is the experiment's device, a CPU.
    launched = ("accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "-m", "bertvision", "run")
    assert {record["model"] for record in call(*launched)} == {"encoder", "last_linear"}


@pytest.mark.parametrize("command", ["run", "pretrain"])
def test_a_command_that_trains_starts_itself_as_often_as_it_is_asked_to(command, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr("bertvision.training.distributed.launch", lambda *given: started.append(given) or 3)
    words = [command, str(tmp_path / "any.yaml"), "--processes", "2"]
    monkeypatch.setattr(sys, "argv", ["bertvision", *words])
    assert CliRunner().invoke(app, words).exit_code == 3
    assert started == [(2, [sys.executable, "-m", "bertvision", *words])]
