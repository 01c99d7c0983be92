import pytest

from bertvision.errors import EncoderError, TrainingError
from bertvision.states import keep
from bertvision.states.keep import keep_in_ram


def test_states_that_memory_does_not_hold_are_refused_beforehand(wanted, monkeypatch):
    monkeypatch.setattr(keep, "states_of", None)
    monkeypatch.setattr(keep, "free_ram", lambda: wanted().layout().num_bytes - 1)
    with pytest.raises(TrainingError, match=r"set states\.source to disk or live"):
        keep_in_ram(wanted())


def test_layers_that_the_encoder_has_not_are_refused(wanted):
    with pytest.raises(EncoderError, match="has the states 0 to 2"):
        keep_in_ram(wanted(layers=(3,)))


def test_kept_states_are_as_large_as_their_layers_and_numbers(wanted, windows):
    tokens = sum(len(window) for window in windows)
    assert wanted().layout().num_bytes == tokens * 3 * 32 * 4
    assert wanted("bf16", layers=(1,)).layout().num_bytes == tokens * 32 * 2
    assert wanted("bf16", pooling="first").layout().num_bytes == len(windows) * 4 * 32 * 2
