import json
from dataclasses import replace

import pytest
import torch

from benchmarks.plan import COLUMNS, plan_states
from bertvision.encoder.encode import freeze
from bertvision.encoder.load import load_encoder
from bertvision.errors import EncoderError, FolderError
from bertvision.experiment import build_experiment
from bertvision.progress import Silent
from bertvision.states.cached import CachedStates
from bertvision.states.live import LiveStates
from bertvision.states.planner import Choice
from bertvision.steps import states
from bertvision.steps.context import prepare
from bertvision.steps.states import open_states

WEIGHTS = "0123456789abcdef" * 4


class Listener(Silent):
    def __init__(self):
        self.said = []

    def say(self, message):
        self.said.append(message)


@pytest.fixture
def make_context(squad_file, encoder_folder, tmp_path):
    """Return a function of overrides that prepares an experiment of three epochs."""
    data = str(squad_file())
    settings = {
        "data": {"train": data, "dev": data},
        "encoder": str(encoder_folder),
        "windows": {"max_length": 24, "stride": 4},
        "heads": {"train": ["learned_pooling", "last_linear"], "batch": {"windows": 4}, "epochs": 3},
        "device": "cpu",
    }
    return lambda *overrides: prepare(build_experiment(settings, overrides), tmp_path / "out", Listener())


def opened(context, fraction=None, weights=WEIGHTS, **more):
    encoder = freeze(load_encoder(context.experiment.encoder), context.compute)
    return open_states(context.at(1, fraction), encoder, weights, context.experiment.heads.train, **more)


def choose(monkeypatch, source):
    """Let the planner choose a source; gives a list that counts its calls."""
    calls = []

    def plan(*given):
        calls.append(given)
        return Choice(source, "it is quickest", [])

    monkeypatch.setattr(states, "plan_source", plan)
    return calls


@pytest.mark.parametrize(
    ("name", "kind", "word"),
    [("live", LiveStates, "live"), ("ram", CachedStates, "ram, bf16"), ("disk", CachedStates, "disk, bf16")],
)
def test_a_source_that_is_asked_for_is_used_without_measuring(name, kind, word, make_context, monkeypatch):
    calls = choose(monkeypatch, "live")
    context = make_context(f"states={name}", "states.batch.windows=3", "heads.batch.windows=2")
    with opened(context) as (source, described):
        assert isinstance(source, kind)
        assert described == word
        assert sorted(batch.size for batch in source.epoch(0)) == [1, 1, 2, 2, 2]  # of 3, 3 and 2 windows
    assert (calls, context.progress.said) == ([], [])


@pytest.mark.parametrize("name", ["live", "ram", "disk"])
def test_all_sources_give_the_same_steps(name, make_context):
    with opened(make_context("states=live")) as (live, _), opened(make_context(f"states={name}")) as (source, _):
        for one, other in zip(live.epoch(1), source.epoch(1), strict=True):
            assert one.windows.rows.tolist() == other.windows.rows.tolist()
            real = one.windows.mask[:, None, :, None]
            torch.testing.assert_close(other.states * real, one.states * real, rtol=1e-2, atol=1e-2)


def test_one_pass_is_live_and_nothing_is_measured(make_context, monkeypatch):
    calls = choose(monkeypatch, "ram")
    context = make_context("heads.epochs=1")
    with opened(context) as (_, described):
        assert described == "live"
    assert (calls, context.progress.said) == ([], [])


def test_auto_asks_the_planner_and_says_why(make_context, monkeypatch):
    calls = choose(monkeypatch, "ram")
    context = make_context()
    with opened(context) as (_, described):
        assert described == "ram, bf16"
    assert len(calls) == 1
    assert context.progress.said == ["states: ram, it is quickest"]


@pytest.mark.parametrize("name", ["ram", "disk"])
def test_a_stage_that_was_cut_short_goes_on_with_the_states_it_began_with(name, make_context, monkeypatch, tmp_path):
    choose(monkeypatch, name)
    with pytest.raises(KeyboardInterrupt), opened(make_context(), 0.5):
        raise KeyboardInterrupt
    assert (tmp_path / "out" / "states" / "0.5" / "manifest.json").exists() == (name == "disk")
    calls = choose(monkeypatch, "live")
    with opened(make_context(), 0.5) as (_, described):
        assert described == f"{name}, bf16"
    assert calls == []
    assert (tmp_path / "out" / "unfinished" / "heads-0.5" / "states.json").exists()  # where the stage tidies up


@pytest.mark.parametrize(("keep", "left"), [(False, False), (True, True)])
def test_states_in_the_run_folder_are_removed_unless_kept(keep, left, make_context, tmp_path):
    with opened(make_context("states=disk", f"states.keep={str(keep).lower()}"), 1):
        assert (tmp_path / "out" / "states" / "1" / "manifest.json").exists()
    assert (tmp_path / "out" / "states").exists() == left


def test_a_folder_of_ones_own_holds_the_states_of_several_encoders(make_context, tmp_path):
    overrides = ("states=disk", f"states.folder={tmp_path / 'mine'}")
    with opened(make_context(*overrides)):
        pass
    with opened(make_context(*overrides), weights="f" * 64):
        pass
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {WEIGHTS[:16], "f" * 16}
    assert not (tmp_path / "out" / "states").exists()


def test_states_that_were_kept_are_used_without_asking(make_context, monkeypatch):
    with opened(make_context("states=disk", "states.keep=true")):
        pass
    calls = choose(monkeypatch, "live")
    with opened(make_context("heads.epochs=1", "states.keep=true")) as (_, described):
        assert described == "disk, bf16"
    assert calls == []


def test_kept_states_of_other_settings_are_refused(make_context):
    with opened(make_context("states=disk", "states.keep=true")):
        pass
    with pytest.raises(FolderError, match='dtype was "bf16" and is now "int8"'):
        opened(make_context("states=disk", "states.dtype=int8")).__enter__()


@pytest.mark.parametrize("name", ["live", "disk", "auto"])
def test_layers_are_chosen_and_those_the_encoder_has_not_are_refused(name, make_context):
    with opened(make_context("states=ram", "states.layers=[0, 2]")) as (source, _):
        assert next(iter(source.epoch(0))).states.shape[1] == 2
    with pytest.raises(EncoderError, match="has the states 0 to 2"):
        opened(make_context(f"states={name}", "states.layers=[0, 7]")).__enter__()


def test_a_plan_measures_and_gives_three_estimates(make_context, tmp_path):
    context = make_context()
    before = {path.name for path in tmp_path.iterdir()}
    plan = plan_states(context.experiment, tmp_path / "elsewhere")
    tokens = sum(len(window) for window in context.train)
    assert plan.title == f"experiment: {len(context.train)} windows, {tokens} tokens, 3 passes, 2 heads"
    assert [row[0] for row in plan.as_table().rows] == ["live", "ram", "disk"]
    assert all(len(row) == len(COLUMNS) for row in plan.as_table().rows)
    assert plan.choice.source in plan.sentence
    found = json.loads(json.dumps(plan.as_dict()))
    quickest = min(found["estimates"], key=lambda each: each["seconds"])
    assert found["choice"] == quickest["source"]
    assert all(each["seconds"] > 0 and each["fits"] for each in found["estimates"])
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["live", "ram", "disk"])
def test_states_of_the_first_token_stand_beside_those_of_all(name, make_context, tmp_path):
    context = make_context(f"states={name}", "states.keep=true")
    pairs = replace(context, task=context.task._replace(name="swag", labels=("0", "1")))  # two endings
    with opened(context, 0.5) as (whole, _), opened(pairs, 0.5, pooling="first") as (source, _):
        assert next(iter(whole.epoch(0))).states.shape[1:] != (4, 1, 32)
        for batch in source.epoch(1):
            assert batch.states.shape[1:] == (4, 1, 32)  # the pooled state is one more
            assert (batch.windows.rows[1::2] == batch.windows.rows[::2] + 1).all()
    kept = {path.name for path in (tmp_path / "out" / "states").glob("*")}
    assert kept == ({"0.5", "0.5-cls"} if name == "disk" else set())


def test_auto_keeps_one_state_per_layer_and_row_in_memory_without_measuring(make_context):
    context = make_context()
    with opened(context, pooling="first") as (source, _):
        assert isinstance(source, CachedStates)
        assert next(iter(source.epoch(0))).states.shape[2] == 1
    assert not context.progress.said
