import pytest

from bertvision.encoder.encode import freeze
from bertvision.states import memory
from bertvision.states.memory import StateRequest
from bertvision.windows.window import WindowConfig, cut_windows


@pytest.fixture
def windows(encoder, questions):
    """Eight windows of different lengths."""
    cut = cut_windows(questions, encoder.tokenizer, WindowConfig())
    assert len({len(window) for window in cut}) > 4
    return cut


@pytest.fixture
def small_batches(monkeypatch):
    """Let eight windows fill several batches."""
    monkeypatch.setattr(memory, "BUILD_TOKENS", 40)


@pytest.fixture
def wanted(encoder, windows, cpu):
    """Return a function that describes states of the tiny encoder to keep."""
    freeze(encoder, cpu)

    def describe(**more):
        return StateRequest(encoder, windows, cpu, **more)

    return describe
