"""Several processes pre-train together: each has its part of every batch, and what comes out is one process's."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from itertools import chain

import numpy as np
import pytest
import torch
from transformers import AutoModel

from bertvision.errors import TrainingError
from bertvision.files import read_json
from bertvision.pretraining.config import build_pretraining
from bertvision.pretraining.model import build_model, total_loss
from bertvision.pretraining.pretrain import Position, StepSource, pretrain
from bertvision.progress import Silent
from bertvision.records import read_pretraining_record
from bertvision.training.device import Compute
from bertvision.training.distributed import Processes, launch
from bertvision.windows.plan import WHOLE, Part

# Batches that three processes cannot share evenly, and such that have fewer rows than processes.
STAGES = [{"length": 32, "steps": 3, "batch_tokens": 224}, {"length": 64, "steps": 3, "batch_tokens": 64}]
WAYS = {
    "pairs": {"accumulate": 2},
    "words": {"objective": "mlm", "step_mode": "packed", "masking": {"whole_words": True}},
    "ltr": {"objective": "ltr", "step_mode": "packed"},
}
# Pre-trains in turn, and kills the process of one rank after some steps of what is called `killed`.
SCRIPT = """
import json, os, signal, sys
from pathlib import Path
from bertvision.pretraining.config import build_pretraining
from bertvision.pretraining.pretrain import pretrain
from bertvision.training.loop import Group

step = Group.step

def counted(group, batches):
    if [name, os.environ["RANK"], str(group.learners[0].schedule.taken)] == ["killed", *sys.argv[3:]]:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(group, batches)

Group.step = counted
for name, settings in json.loads(Path(sys.argv[1]).read_text()).items():
    pretrain(build_pretraining(settings), Path(sys.argv[2]) / name)
"""


def sources_of(config, prepared, parts):
    packed = config.step_mode == "packed"
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
    # Begun by one process; undisturbed; killed.
    return {**ways, "begun": ways["pairs"], "dropout": shared, "killed": shared}


class Stopped(Exception):  # noqa: N818 (no error: what a test waits for)
    pass


class Stopping(Silent):
    """A progress that ends the process, as it were, after so many steps."""

    def __init__(self, after):
        self._left = after

    @contextmanager
    def bar(self, what, total):
        yield self

    def advance(self, amount, note=None):
        if self._left == 0:
            raise Stopped
        self._left -= 1


@pytest.fixture(scope="module")
def start(settings, tmp_path_factory):
    """Return a function that pre-trains, by name, in two processes, of which one is killed."""
    folder = tmp_path_factory.mktemp("processes")
    (folder / "script.py").write_text(SCRIPT)

    def start(names, out, killed_rank, steps):
        (folder / "settings.json").write_text(json.dumps({name: settings[name] for name in names}))
        given = folder / "script.py", folder / "settings.json", out, killed_rank, steps
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OMP_NUM_THREADS", "1")
            with pytest.raises(TrainingError, match=rf"process {killed_rank} of 2 was killed \(signal 9\)"):
                launch(2, [sys.executable, *map(str, given)])

    return start


@pytest.fixture(scope="module")
def two(settings, start, tmp_path_factory):
    """What two processes pre-trained, until the second one was killed."""
    out = tmp_path_factory.mktemp("two")
    with pytest.raises(Stopped):
        pretrain(build_pretraining(settings["begun"]), out / "begun", Stopping(after=4))
    start(settings, out, killed_rank=1, steps=3)
    return out


def states_of(place):
    with torch.no_grad():
        return AutoModel.from_pretrained(place).eval()(input_ids=torch.arange(5, 35)[None]).last_hidden_state


@pytest.mark.flow
@pytest.mark.parametrize("way", [*WAYS, "begun"])
def test_what_two_processes_pre_train_computes_what_one_does(settings, two, tmp_path, way):
    one = pretrain(build_pretraining(settings[way]), tmp_path / way)
    record = read_pretraining_record(two / way)
    assert record.provenance.device.startswith("2 x cpu")
    assert (record.tokens, record.operations, record.steps) == (one.tokens, one.operations, one.steps)
    assert record.loss.words == pytest.approx(one.loss.words, rel=1e-5)
    assert record.loss.pairs == (None if one.loss.pairs is None else pytest.approx(one.loss.pairs, rel=1e-5))
    assert record.loss.pairs_accuracy == (None if one.loss.pairs is None else pytest.approx(one.loss.pairs_accuracy))
    losses = [[point.loss for point in each.training] for each in (record, one)]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    for place in ("steps/3", "encoder"):
        # Adam divides by the size of gradients: what rounds differently where parts are added up moves by 1e-6.
        torch.testing.assert_close(states_of(two / way / place), states_of(tmp_path / way / place), rtol=0, atol=1e-4)
    assert files_of(two / way) == files_of(tmp_path / way)


def files_of(out):
    return {path.relative_to(out) for path in out.rglob("*")}


@pytest.mark.flow
def test_it_goes_on_after_any_process_was_killed_to_the_bits_of_two_that_were_not(settings, start, two, tmp_path):
    place, config = two / "killed", tmp_path / "tiny.yaml"
    saved = place / "unfinished" / "pretraining" / "progress" / "position.json"
    assert read_json(saved)["position"][0] == 3
    start(["killed"], two, killed_rank=0, steps=5)
    assert read_json(saved)["position"][0] == 5
    assert not (place / "encoder").exists()
    config.write_text(json.dumps(settings["killed"]))
    printed = call("bertvision", "pretrain", config, "--out", place, "--processes", "2")  # once, by the first one
    assert printed["loss"] == read_pretraining_record(two / "dropout").loss.model_dump()
    assert torch.equal(states_of(place / "encoder"), states_of(two / "dropout" / "encoder"))
    assert files_of(place) == files_of(two / "dropout")
    launched = ("accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "-m", "bertvision", "pretrain")
    assert call(*launched, config, "--out", place) == printed


def call(*command):
    given = [sys.executable, "-m", *map(str, command), "--json", "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return json.loads(subprocess.run(given, capture_output=True, text=True, check=True, env=environment).stdout)
