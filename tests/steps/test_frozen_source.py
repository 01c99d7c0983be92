"""Fine-tuning with frozen bottom blocks: from which source, and that the source changes nothing."""

import json
from contextlib import contextmanager

import pytest
import torch
from safetensors.torch import load_file

from benchmarks.plan import plan_states
from bertvision.encoder.encode import freeze
from bertvision.experiment import build_experiment
from bertvision.heads.logits import token_logits
from bertvision.model_folder import load_model
from bertvision.progress import Silent
from bertvision.states import planner
from bertvision.states.planner import Choice, Estimate
from bertvision.steps import finetune, frozen_source
from bertvision.steps.run import run, run_finetune

FROZEN = {"train": "top:1", "norms": False}


class Listener(Silent):
    def __init__(self):
        self.said = []

    def say(self, message):
        if not message.startswith("warning: "):  # of so few steps nothing is learned, which is not asked here
            self.said.append(message)


@pytest.fixture(autouse=True)
def _measures_shortly(monkeypatch):
    monkeypatch.setattr(planner, "SECONDS", 0.01)
    monkeypatch.setattr(planner, "SAMPLE_BYTES", 4000)


@pytest.fixture
def make_experiment(squad_file, encoder_folder):
    """Return a function of overrides: two epochs that train one of two blocks, dropout on."""
    data = str(squad_file())
    settings = {
        "data": {"train": data, "dev": data},
        "encoder": str(encoder_folder),
        "windows": {"max_length": 24, "stride": 4},
        "finetune": {"fractions": [0, 0.5, 2], "batch": {"windows": 2}, "lr": 1e-2},
        "tune": FROZEN,
        "heads": {"train": []},
        "device": "cpu",
        "precision": "float32",  # by `auto`, a CPU that is faster in bf16 is told of
    }
    return lambda *overrides: build_experiment(settings, overrides)


def weights(place):
    return load_file(place / "model.safetensors") | load_file(place / "head.safetensors")


def log_probabilities(place, windows, cpu):
    """What a folder's model computes: of every token's start and end, window after window."""
    model = load_model(place)
    logits = token_logits(freeze(model.encoder, cpu), {"output": model.head}, windows, cpu)["output"]
    by_window = torch.tensor(logits).split([len(window) for window in windows])
    return torch.cat([each.log_softmax(dim=0) for each in by_window])


def choose(monkeypatch, source):
    """Let the planner choose a source; gives a list that counts its choices."""
    calls = []

    def chosen(*given):
        calls.append(given)
        return Choice(source, "it is quickest", [Estimate(source, {}, 0, None)])

    monkeypatch.setattr(frozen_source, "choose_source", chosen)
    return calls


@pytest.mark.parametrize("source", ["ram", "disk"])
def test_the_source_of_frozen_states_changes_nothing_and_is_named(source, make_experiment, make_task, cpu, tmp_path):
    windows, _ = make_task("span")
    live = run_finetune(make_experiment("finetune.bottom=live"), tmp_path / "live")
    kept = run_finetune(make_experiment(f"finetune.bottom={source}"), tmp_path / "kept")
    for one, other in zip(live, kept, strict=True):
        assert weights(one).keys() == weights(other).keys()
        expected, found = (log_probabilities(each, windows, cpu) for each in (one, other))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    learned = "encoder.layer.1.output.dense.weight"
    assert (weights(live[2])[learned] - weights(live[0])[learned]).abs().max() > 1e-2
    timing = [json.loads((places[2] / "timing.json").read_text()) for places in (live, kept)]
    assert [each.get("bottom") for each in timing] == [None, f"{source}, float32"]
    assert not (tmp_path / "kept" / "states").exists()


def test_another_source_is_the_same_experiment(make_experiment, tmp_path):
    records = run(make_experiment("finetune.bottom=ram"), tmp_path)
    assert [record.states for record in records] == ["ram, float32"] * 3
    written = [place.stat().st_mtime_ns for place in sorted(tmp_path.glob("encoder/*/model.safetensors"))]
    again = run_finetune(make_experiment("finetune.bottom=live"), tmp_path)
    assert written == [(place / "model.safetensors").stat().st_mtime_ns for place in sorted(again)]


def test_auto_is_the_word_for_the_default(make_experiment):
    assert make_experiment("finetune.bottom=auto") == make_experiment()


def test_where_the_output_of_frozen_blocks_comes_from_decides_no_folder(make_experiment, tmp_path):
    (*_, place) = run_finetune(make_experiment(), tmp_path)
    made_by = json.loads((place / "made_by.json").read_text())
    assert "bottom" not in made_by["finetune"]


@pytest.mark.parametrize("source", ["live", "ram", "disk"])
def test_a_fine_tuning_that_was_stopped_goes_on_with_its_source(source, make_experiment, tmp_path, monkeypatch):
    calls = choose(monkeypatch, source)
    overrides = ("finetune.save_every=1e-9", "finetune.fractions=[2]")
    (whole,) = run_finetune(make_experiment(*overrides), tmp_path / "whole")
    with stopped(monkeypatch, "_save"):
        run_finetune(make_experiment(*overrides), tmp_path / "cut")
    assert len(calls) == 2
    assert (tmp_path / "cut" / "states" / "bottom" / "manifest.json").exists() == (source == "disk")
    noted = json.loads((tmp_path / "cut" / "unfinished" / "finetune" / "bottom.json").read_text())
    assert noted["source"] == source
    (resumed,) = run_finetune(make_experiment(*overrides), tmp_path / "cut")
    assert len(calls) == 2
    assert (whole / "model.safetensors").read_bytes() == (resumed / "model.safetensors").read_bytes()
    assert (whole / "head.safetensors").read_bytes() == (resumed / "head.safetensors").read_bytes()


@contextmanager
def stopped(monkeypatch, function):
    """Cut a fine-tuning short where it would call a function."""

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(finetune, function, stop)
        with pytest.raises(KeyboardInterrupt):
            yield


def test_what_keeping_cost_is_counted_once_also_after_a_stop(make_experiment, tmp_path, monkeypatch):
    overrides = ("finetune.bottom=disk", "finetune.fractions=[0, 2]")
    with stopped(monkeypatch, "tune_together"):
        run_finetune(make_experiment(*overrides), tmp_path)
    path = tmp_path / "unfinished" / "finetune" / "bottom.json"
    noted = json.loads(path.read_text())
    assert 0 < noted["costs"]["seconds"] < 100
    noted["costs"]["seconds"] = 1000.0
    path.write_text(json.dumps(noted))
    places = run_finetune(make_experiment(*overrides), tmp_path)
    seconds = [json.loads((place / "timing.json").read_text())["seconds"] for place in places]
    assert seconds[0] == 0
    assert 1000 < seconds[1] < 1100


@pytest.mark.parametrize("fractions", ["[0.5]", "[0, 1]"])
def test_windows_that_are_seen_once_are_computed_live_without_measuring(
    fractions, make_experiment, tmp_path, monkeypatch
):
    monkeypatch.setattr(frozen_source, "measure_speeds", None)
    listener = Listener()
    (*_, place) = run_finetune(make_experiment(f"finetune.fractions={fractions}"), tmp_path, listener)
    assert "bottom" not in json.loads((place / "timing.json").read_text())
    assert listener.said == []


def test_more_than_an_epoch_is_planned_by_its_passes_and_the_reason_is_said(make_experiment, tmp_path, monkeypatch):
    calls, listener = choose(monkeypatch, "ram"), Listener()
    run_finetune(make_experiment("finetune.fractions=[1.5]"), tmp_path, listener)
    ((work, speeds, _),) = calls
    assert work.passes == 1.5
    assert work.num_bytes == work.tokens * 32 * 4
    assert speeds.heads == float("inf")
    assert listener.said == ["frozen blocks 1 to 1: ram, it is quickest"]


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["tune.norms=true"], "tune.norms trains the embeddings' norm"),
        (["tune.insert=pfeiffer:4"], "no block lies below all that is trained"),
        (["tune.train=top:2"], "no block lies below all that is trained"),
        (["finetune.head=learned_pooling"], "the output layer reads states of frozen blocks"),
    ],
)
def test_where_nothing_can_be_kept_it_runs_live_and_says_why(overrides, reason, make_experiment, tmp_path):
    listener = Listener()
    (*_, place) = run_finetune(make_experiment("finetune.bottom=ram", *overrides), tmp_path / "asked", listener)
    assert "bottom" not in json.loads((place / "timing.json").read_text())
    assert len(listener.said) == 1
    assert reason in listener.said[0]
    plan = plan_states(make_experiment("heads.train=[learned_pooling]", *overrides), tmp_path / "planned")
    assert reason in plan.sentence
    assert plan.as_dict()["bottom"]["choice"] == "live"


def test_a_plan_measures_the_frozen_blocks(make_experiment, tmp_path):
    plan = plan_states(make_experiment("heads.train=[learned_pooling]"), tmp_path)
    found = plan.as_dict()["bottom"]
    assert f"finetune.bottom: auto would choose {found['choice']}: about" in plan.sentence
    assert [each["source"] for each in found["estimates"]] == ["live", "ram", "disk"]
    assert all(each["seconds"] > 0 for each in found["estimates"])


def test_without_heads_a_plan_speaks_of_frozen_blocks_alone(make_experiment, tmp_path):
    plan = plan_states(make_experiment(), tmp_path)
    assert plan.sentence.startswith("finetune.bottom: auto would choose ")
    assert "states.source" not in plan.sentence
    assert (plan.as_table().rows, list(plan.as_dict())) == ((), ["bottom"])


def test_without_heads_and_frozen_blocks_there_is_nothing_to_plan(make_experiment, tmp_path):
    settings = make_experiment().model_dump(mode="json") | {"tune": None}
    plan = plan_states(build_experiment(settings), tmp_path)
    assert plan.sentence.startswith("Nothing to plan: ")
    assert (plan.as_table().rows, plan.as_dict()) == ((), {})


def test_where_every_weight_is_tuned_a_plan_says_nothing_of_frozen_ones(make_experiment, tmp_path):
    settings = make_experiment("heads.train=[learned_pooling]").model_dump(mode="json") | {"tune": None}
    plan = plan_states(build_experiment(settings), tmp_path)
    assert "bottom" not in plan.sentence
    assert "bottom" not in plan.as_dict()


def test_a_head_of_the_last_state_can_be_the_output_layer_on_kept_states(make_experiment, tmp_path):
    (*_, place) = run_finetune(make_experiment("finetune.bottom=ram", "finetune.head=last_adapter"), tmp_path)
    assert json.loads((place / "timing.json").read_text())["bottom"] == "ram, float32"


def test_an_encoder_that_learns_nothing_needs_to_run_once(make_experiment, make_task, cpu, tmp_path):
    live = run_finetune(make_experiment("tune.train=none", "finetune.bottom=live"), tmp_path / "live")
    kept = run_finetune(make_experiment("tune.train=none", "finetune.bottom=ram"), tmp_path / "kept")
    expected, found = (log_probabilities(each[2], make_task("span")[0], cpu) for each in (live, kept))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_folder_of_ones_own_serves_all_seeds(make_experiment, tmp_path, monkeypatch):
    overrides = ("finetune.bottom=disk", f"states.folder={tmp_path / 'mine'}", "seeds=[1, 2]")
    run_finetune(make_experiment(*overrides), tmp_path / "out")
    (kept,) = (tmp_path / "mine").iterdir()
    assert kept.name.endswith("-entering2")
    assert not (tmp_path / "out" / "states").exists()
    monkeypatch.setattr(frozen_source, "measure_speeds", None)  # what is there is used without measuring
    listener = Listener()
    run_finetune(make_experiment(*overrides[1:]), tmp_path / "more", listener)
    timing = json.loads((tmp_path / "more" / "encoder" / "2" / "timing.json").read_text())
    assert timing["bottom"] == "disk, float32"


def test_kept_states_stay_where_they_are_to_be_kept(make_experiment, tmp_path):
    run_finetune(make_experiment("finetune.bottom=disk", "states.keep=true"), tmp_path)
    assert (tmp_path / "states" / "bottom" / "manifest.json").exists()
