import numpy as np
import pytest

from bertvision.encoder.encode import freeze
from bertvision.states import blocks
from bertvision.states.keep import Wanted
from bertvision.windows.window import WindowConfig, cut_windows


@pytest.fixture
def windows(encoder, questions):
    """Eight windows of different lengths."""
    cut = cut_windows(questions, encoder.tokenizer, WindowConfig())
    assert len({len(window) for window in cut}) > 4
    return cut


@pytest.fixture
def small_shards(monkeypatch):
    """Let eight windows fill several shards of several batches."""
    monkeypatch.setattr(blocks, "BUILD_TOKENS", 40)
    monkeypatch.setattr(blocks, "SHARD_BYTES", 10_000)


@pytest.fixture
def wanted(encoder, windows, cpu):
    """Return a function that describes states of the tiny encoder to keep."""
    freeze(encoder, cpu)

    def describe(dtype="float32", **more):
        return Wanted(encoder, windows, cpu, dtype, **more)

    return describe


@pytest.fixture
def lengths():
    return np.array([5, 9, 3, 7, 9, 1], dtype=np.int64)
