"""Several processes pre-train together: each has its part of every batch, and what comes out is one process's."""

import json
import os
import subprocess
import sys
from itertools import chain

import numpy as np
import pytest
import torch
from transformers import AutoModel

from bertvision.errors import TrainingError
from bertvision.pretraining.config import build_pretraining
from bertvision.pretraining.model import build_model, total_loss
from bertvision.pretraining.pretrain import pretrain
from bertvision.pretraining.steps import Position, StepSource
from bertvision.records import read_pretraining_record
from bertvision.training.device import Compute
from bertvision.training.processes import Processes, launch
from bertvision.windows.batches import WHOLE, Part

# Batches that three processes cannot share evenly, and such that have fewer rows than processes.
STAGES = [{"length": 32, "steps": 3, "tokens": 224}, {"length": 64, "steps": 3, "tokens": 64}]
WAYS = {
    "pairs": {"accumulate": 2},
    "words": {"objective": "mlm", "step": "packed", "masking": {"whole_words": True}},
    "ltr": {"objective": "ltr", "step": "packed"},
}
# Pre-trains in turn, and kills the process of one rank before a step.
SCRIPT = """
import json, os, signal, sys
from pathlib import Path
from bertvision.pretraining.config import build_pretraining
from bertvision.pretraining.pretrain import pretrain
from bertvision.training.loop import Group

taken, step = [], Group.step

def counted(group, batches):
    taken.append(group)
    if os.environ["RANK"] == os.environ.get("KILLED_RANK") and len(taken) == int(os.environ["KILLED_AT"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return step(group, batches)

Group.step = counted
for name, settings in json.loads(Path(sys.argv[1]).read_text()).items():
    pretrain(build_pretraining(settings), Path(sys.argv[2]) / name)
"""


def sources_of(config, prepared, parts):
    packed = config.step == "packed"
    return [StepSource(config, prepared.train, prepared.vocabulary, packed=packed, part=part) for part in parts]


@pytest.mark.parametrize("way", WAYS)
def test_parts_of_a_step_add_up_to_it(make_config, prepared, cpu, way):
    config = make_config(**WAYS[way], stages=STAGES, dropout=0.0)
    model = build_model(config, prepared.vocabulary).eval()
    parts = [WHOLE, *(Part(place, 3) for place in range(3))]
    steps = [list(source.steps_from(Position())) for source in sources_of(config, prepared, parts)]
    lacking = 0
    for (position, whole), *shared in zip(*steps, strict=True):
        assert {other for other, _ in shared} == {position}
        model.zero_grad()
        expected = sum(total_loss(model, batch, cpu) for batch in whole)
        expected.backward()
        gradients = {name: weight.grad.clone() for name, weight in model.named_parameters()}
        model.zero_grad()
        own = [batch for _, batches in shared for batch in batches]
        found = sum(total_loss(model, batch, cpu) for batch in own)
        found.backward()
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
        for name, weight in model.named_parameters():
            torch.testing.assert_close(weight.grad, gradients[name], rtol=1e-3, atol=1e-5, msg=name)
        lacking += sum(not batch.weights.any() for batch in own)
    assert lacking  # some process had no row of some batch


@pytest.mark.parametrize("way", WAYS)
def test_every_prediction_is_of_one_process_and_as_one_alone_would_draw_it(make_config, prepared, way):
    config = make_config(**WAYS[way], stages=STAGES)
    parts = [WHOLE, *(Part(place, 3) for place in range(3))]
    steps = [list(source.steps_from(Position())) for source in sources_of(config, prepared, parts)]
    for (_, whole), *shared in zip(*steps, strict=True):
        for batch, *own in zip(whole, *(batches for _, batches in shared), strict=True):
            assert sorted(chain(*map(seen_and_asked, own))) == sorted(seen_and_asked(batch))
            assert seen_and_asked(batch)
            assert {(each.lengths, each.num_predicted) for each in own} == {(batch.lengths, batch.num_predicted)}


def seen_and_asked(batch):
    """Return what the encoder sees at every place that predicts and behind it, and what it is to predict."""
    ids = batch.inputs.ids.flatten().tolist()
    asked = zip(batch.places.tolist(), batch.labels.tolist(), batch.weights.tolist(), strict=True)
    return [(*ids[place : place + 2], label, weight) for place, label, weight in asked if weight > 0]


def test_the_peak_is_that_of_all_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    compute = Compute(torch.device("cuda"), torch.bfloat16, Processes(0, 4))
    assert compute.peak == 4 * compute.alone().peak


@pytest.fixture(scope="module")
def settings(shared_text_file):
    """Settings of tiny pre-trainings that save after every step, by name."""
    shared = {
        "data": {"train": str(shared_text_file), "held_out_every": 5},
        "vocabulary": {"size": 120},
        "size": {"layers": 2, "hidden": 16, "heads": 2, "positions": 64},
        "stages": STAGES,
        "lr": 1e-2,
        "evaluate_every": 4,
        "evaluate_tokens": 512,
        "checkpoints": [3],
        "save_every": 1e-9,
        "device": "cpu",
    }
    ways = {name: {**shared, **way, "dropout": 0.0} for name, way in WAYS.items()}
    return {**ways, "dropout": {**shared, "dropout": 0.1}}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Return a function that pre-trains in two processes, with further variables of the environment."""
    folder = tmp_path_factory.mktemp("processes")
    (folder / "script.py").write_text(SCRIPT)

    def start(settings, out, **environment):
        (folder / "settings.json").write_text(json.dumps(settings))
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {"OMP_NUM_THREADS": "1", **environment}.items():
                patch.setenv(name, value)
            return launch(2, [sys.executable, *map(str, (folder / "script.py", folder / "settings.json", out))])

    return start


@pytest.fixture(scope="module")
def two(settings, start, tmp_path_factory):
    """What two processes pre-trained."""
    out = tmp_path_factory.mktemp("two")
    assert start(settings, out) == 0
    return out


def states_of(place):
    with torch.no_grad():
        return AutoModel.from_pretrained(place).eval()(input_ids=torch.arange(5, 35)[None]).last_hidden_state


@pytest.mark.flow
@pytest.mark.parametrize("way", WAYS)
def test_what_two_processes_pre_train_computes_what_one_does(settings, two, tmp_path, way):
    one = pretrain(build_pretraining(settings[way]), tmp_path / way)
    record = read_pretraining_record(two / way)
    assert record.provenance.device.startswith("2 x cpu")
    assert (record.tokens, record.operations, record.steps) == (one.tokens, one.operations, one.steps)
    assert record.loss.words == pytest.approx(one.loss.words, rel=1e-5)
    assert record.loss.pairs == (None if one.loss.pairs is None else pytest.approx(one.loss.pairs, rel=1e-5))
    assert record.loss.pairs_right == (None if one.loss.pairs is None else pytest.approx(one.loss.pairs_right))
    losses = [[point.loss for point in each.training] for each in (record, one)]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    for place in ("steps/3", "encoder"):
        # Adam divides by the size of gradients: what rounds differently where parts are added up moves by 1e-6.
        torch.testing.assert_close(states_of(two / way / place), states_of(tmp_path / way / place), rtol=0, atol=1e-4)
    assert files_of(two / way) == files_of(tmp_path / way)


def files_of(out):
    return {path.relative_to(out) for path in out.rglob("*")}


@pytest.mark.flow
def test_it_goes_on_after_any_process_was_killed_and_in_another_number_of_them(settings, start, two, tmp_path):
    out = tmp_path / "out"
    for rank, step in (("1", "3"), ("0", "2")):  # the second one goes on from the first
        with pytest.raises(TrainingError, match=rf"process {rank} of 2 was killed \(signal 9\)"):
            start({"dropout": settings["dropout"]}, out, KILLED_RANK=rank, KILLED_AT=step)
        assert (out / "dropout" / "unfinished" / "pretraining" / "progress").exists()
    with pytest.raises(TrainingError, match="killed"):
        start({"pairs": settings["pairs"]}, out, KILLED_RANK="1", KILLED_AT="4")
    record = pretrain(build_pretraining(settings["pairs"]), out / "pairs")  # in this process alone
    expected = read_pretraining_record(two / "pairs")
    assert record.loss.words == pytest.approx(expected.loss.words, rel=1e-5)
    assert record.tokens == expected.tokens
    # By the command, to the bits of two that were never stopped; each prints its record once.
    (tmp_path / "dropout.yaml").write_text(json.dumps(settings["dropout"]))
    printed = call("bertvision", "pretrain", tmp_path / "dropout.yaml", "--out", out / "dropout", "--processes", "2")
    assert printed["loss"] == read_pretraining_record(two / "dropout").loss.model_dump()
    assert torch.equal(states_of(out / "dropout" / "encoder"), states_of(two / "dropout" / "encoder"))
    launched = ("accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "-m", "bertvision", "pretrain")
    assert call(*launched, tmp_path / "dropout.yaml", "--out", out / "dropout") == printed


def call(*command):
    given = [sys.executable, "-m", *map(str, command), "--json", "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return json.loads(subprocess.run(given, capture_output=True, text=True, check=True, env=environment).stdout)
