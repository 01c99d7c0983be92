import pytest
import torch

from bertvision.encoder.encode import freeze
from bertvision.encoder.load import load_encoder
from bertvision.errors import EncoderError, TrainingError
from bertvision.experiment import build_experiment
from bertvision.progress import Silent
from bertvision.stages.context import prepare
from bertvision.stages.states import open_states
from bertvision.states.live import LiveStates
from bertvision.states.memory import StoredStates

ENOUGH = 16 * 2**30  # bytes


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


def opened(context, pooling=None):
    encoder = freeze(load_encoder(context.experiment.encoder), context.compute)
    return open_states(context, encoder, "0123456789abcdef" * 4, pooling=pooling)


def num_bytes(context):
    """Of the states of all tokens: three layers of width 32, two bytes a number."""
    return sum(map(len, context.train)) * 3 * 32 * 2


@pytest.mark.parametrize(
    ("name", "kind", "word"), [("live", LiveStates, "live"), ("memory", StoredStates, "memory, bf16")]
)
def test_a_source_that_is_asked_for_is_used(name, kind, word, make_context):
    context = make_context(f"states={name}", "states.batch.windows=3", "heads.batch.windows=2")
    source, described = opened(context)
    assert isinstance(source, kind)
    assert described == word
    assert sorted(batch.size for batch in source.epoch(0)) == [1, 1, 2, 2, 2]  # of 3, 3 and 2 windows
    assert context.progress.said == []


def test_both_sources_give_the_same_steps(make_context):
    (live, _), (kept, _) = opened(make_context("states=live")), opened(make_context("states=memory"))
    for one, other in zip(live.epoch(1), kept.epoch(1), strict=True):
        assert one.windows.rows.tolist() == other.windows.rows.tolist()
        real = one.windows.mask[:, None, :, None]
        torch.testing.assert_close(other.states * real, one.states * real, rtol=1e-2, atol=1e-2)


def test_states_are_in_memory_where_they_fit_into_the_limit_of_the_settings(make_context):
    needed = num_bytes(make_context()) / 2**30
    for limit, word in ((needed, "memory, bf16"), (0.999 * needed, "live")):
        assert opened(make_context(f"states.memory={limit}"))[1] == word
    assert opened(make_context())[1] == "memory, bf16"
    assert opened(make_context("heads.epochs=1"))[1] == "live"  # each state is needed once


def test_pooled_states_are_in_memory_as_they_are(make_context):
    assert opened(make_context("heads.epochs=1"), pooling="mean")[1] == "memory, float32"


def test_what_is_free_changes_no_source(make_context, monkeypatch):
    monkeypatch.setattr("bertvision.states.memory.free_memory", lambda: 1)
    assert opened(make_context("states.memory=1e-9"))[1] == "live"
    with pytest.raises(TrainingError, match=r"the states need .* kB of memory and 1\.0 B are free; set states\.source"):
        opened(make_context())


def test_a_run_says_what_live_states_cost_and_what_extracted_ones_would_take(make_context):
    context = make_context("states.memory=1e-9")
    opened(context)
    tokens = sum(map(len, context.train))
    (said,) = context.progress.said
    assert f"{num_bytes(context) / 1000:.1f} kB are more than states.memory (1e-09 GiB)" in said
    assert f"the encoder reads {tokens:,} tokens in each of 3 passes" in said
    assert f"they would take {num_bytes(context) / 1000:.1f} kB on disk" in said
    assert "states.folder" in said


@pytest.mark.parametrize("name", ["live", "memory", "auto"])
def test_layers_are_chosen_and_those_the_encoder_has_not_are_refused(name, make_context):
    source, _ = opened(make_context(f"states={name}", "states.layers=[0, 2]"))
    assert next(iter(source.epoch(0))).states.shape[1] == 2
    with pytest.raises(EncoderError, match="has the states 0 to 2"):
        opened(make_context(f"states={name}", "states.layers=[0, 3]"))
