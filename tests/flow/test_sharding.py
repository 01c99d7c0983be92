"""Two processes tune an encoder that FSDP splits over them, started as `accelerate launch --use_fsdp` does.

One of them is killed while it tunes. The same runs then go on, and what comes out is one process's.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bertvision.encoder.load import load_encoder
from bertvision.errors import TrainingError
from bertvision.experiment import build_experiment
from bertvision.steps.run import run
from bertvision.training.processes import launch

pytestmark = pytest.mark.flow
# Runs experiments in turn, kills the process of one rank before a step, and notes what each process holds of the first
# experiment's encoder, its gradients and its optimizer's averages.
SCRIPT = """
import json, os, signal, sys
from pathlib import Path
from bertvision.experiment import build_experiment
from bertvision.steps.run import run
from bertvision.training.loop import Group, Learner
from bertvision.training.sharding import own_part

rank, killed, held, taken = os.environ["RANK"], os.environ.get("KILLED_RANK"), {}, []
step, update = Group.step, Learner.update

def counted(group, batches):
    taken.append(group)
    if rank == killed and len(taken) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(group, batches)

def noted(learner, *arguments):
    encoder = list(learner.model[0].parameters()) if learner.name == "encoder" else []
    gradients = [weight.grad for weight in encoder]
    update(learner, *arguments)
    kept = [learner.optimizer.state[weight] for weight in encoder if weight in learner.optimizer.state]
    lists = {"weights": encoder, "gradients": gradients, **{key: [own[key] for own in kept] for key in
             ("exp_avg", "exp_avg_sq")}}
    for name, tensors in lists.items() if encoder else ():
        held.setdefault(name, sum(own_part(tensor).numel() for tensor in tensors if tensor is not None))

Group.step, Learner.update = counted, noted
for name, settings in json.loads(Path(sys.argv[1]).read_text()).items():
    run(build_experiment(settings), Path(sys.argv[2]) / name)
Path(sys.argv[2], f"held-{rank}.json").write_text(json.dumps(held))
"""


def experiments(folder, encoder):
    """What is tuned: all weights, then parts of them. Dropout, which draws other numbers in other processes, is off."""
    qas = [{"id": f"q{n}", "question": "when?", "answers": [{"text": "1887", "answer_start": 22}]} for n in range(7)]
    context = "the weir was built in 1887" + " by the river and the stone weir" * 3
    questions, rows = folder / "questions.json", folder / "rows.jsonl"
    questions.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": qas}]}]}))
    texts = [f"the {place} was built by {name}" for place in ("river", "weir", "stone") for name in ("hannah", "coyle")]
    rows.write_text("".join(f"{json.dumps({'text': text, 'label': text.split()[1]})}\n" for text in texts))
    # Batches that two processes cannot share evenly; a norm so small that every step is clipped, and an epsilon beside
    # which a step's size depends on that.
    tune = {"fractions": [0.5, 2], "batch": {"windows": 3}, "min_steps": 0, "least_rows": 0, "dropout": 0.0, "lr": 1e-2}
    tune |= {"optim": {"eps": 1e-3, "max_grad_norm": 0.1}, "save_every": 1e-9}
    heads = {"train": ["last_linear"], "batch": {"windows": 3}, "epochs": 1, "min_steps": 0, "baseline": False}
    shared = {"encoder": str(encoder), "device": "cpu", "windows": {"max_length": 24, "stride": 4}, "states": "live"}

    def experiment(task, data, **more):
        given = {"task": task, "data": {"train": str(data), "dev": str(data)}, "finetune": tune, "heads": heads}
        return {**shared, **given, **more, "name": task}

    all_of_it = {**tune, "accumulate": 2, "gradient_checkpointing": True, "keep_best": True, "evaluate_every": 0.5}
    reads_all_states = {**tune, "head": "learned_pooling"}
    return {
        "all": experiment("squad2", questions, finetune=all_of_it, answers={"tokens": 70}),
        "lora": experiment("squad2", questions, tune={"train": "none", "insert": "lora:2"}),
        "adapters": experiment(
            "squad2", questions, finetune=reads_all_states, tune={"train": "none", "insert": "pfeiffer:4"}
        ),
        "top": experiment("classification", rows, tune={"train": "top:1", "norms": False}),
        "half": experiment("squad2", questions, tune={"frozen_share": 0.5}),
    }


@pytest.fixture(scope="module")
def folder(saved_encoder, tmp_path_factory):
    """Two processes' runs and one process's, with what each of the two held."""
    folder = tmp_path_factory.mktemp("sharding")
    settings, script, given = experiments(folder, saved_encoder), folder / "script.py", folder / "settings.json"
    script.write_text(SCRIPT)
    given.write_text(json.dumps(settings))
    command = [*map(str, (script, given, folder / "two"))]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"OMP_NUM_THREADS": "1", "BERTVISION_COMMIT": "0" * 40}.items():
            patch.setenv(name, value)
        with patch.context() as killing:
            for name, value in {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "KILLED_RANK": "1"}.items():
                killing.setenv(name, value)
            with pytest.raises(TrainingError, match=r"process 1 of 2 was killed \(signal 9\)"):
                launch(2, [sys.executable, *command])
        assert (folder / "two" / "all" / "unfinished" / "finetune" / "progress").exists()
        shutil.copytree(folder / "two" / "all", folder / "gone on" / "all")
        run(build_experiment(settings["all"]), folder / "gone on" / "all")
        launcher = ("-m", "accelerate.commands.launch", "--use_fsdp", "--fsdp_version", "2", "--num_processes", "2")
        subprocess.run([sys.executable, *launcher, *command], check=True, env=os.environ)
        for name, own in settings.items():
            run(build_experiment(own), folder / "one" / name)
    return folder


def test_each_process_holds_about_half_of_what_training_needs(folder, saved_encoder):
    encoder = load_encoder(str(saved_encoder))
    learns = encoder.num_parameters - sum(weight.numel() for weight in encoder.model.pooler.parameters())
    parts = [json.loads((folder / "two" / f"held-{rank}.json").read_text()) for rank in range(2)]
    # No answer depends on the pooler, so it has no gradient.
    expected = {"weights": encoder.num_parameters, "gradients": learns, "exp_avg": learns, "exp_avg_sq": learns}
    for name, whole in expected.items():
        sizes = [part[name] for part in parts]
        assert sum(sizes) == whole
        assert min(sizes) > 0.45 * whole  # a weight with an odd number of rows is not halved exactly


@pytest.mark.parametrize("name", ["all", "lora", "adapters", "top", "half"])
def test_what_two_processes_tune_computes_what_one_process_tunes_also_after_one_was_killed(folder, name):
    assert_alike(folder / "one" / name, folder / "two" / name)


def test_a_run_that_two_processes_began_goes_on_in_one(folder):
    assert_alike(folder / "one" / "all", folder / "gone on" / "all")


def assert_alike(one: Path, two: Path):
    """Compare what is there, and what the models compute."""
    assert {path.relative_to(one) for path in one.rglob("*")} == {path.relative_to(two) for path in two.rglob("*")}
    found = list(one.rglob("logits.safetensors")) + list(one.rglob("probabilities.json"))
    assert found
    for path in found:
        # As in test_processes.py: what rounds differently where parts are added up is another on every CPU.
        np.testing.assert_allclose(numbers_in(two / path.relative_to(one)), numbers_in(path), rtol=0, atol=5e-4)


def numbers_in(path: Path):
    if path.suffix == ".json":
        return [list(each.values()) for each in json.loads(path.read_text()).values()]
    return load_file(path)["logits"]
