import pytest

from bertvision.serving import batcher


def test_giving_back_works_where_there_is_no_such_function(monkeypatch):
    monkeypatch.setattr(batcher.ctypes, "CDLL", lambda name: object())
    batcher.give_back_memory()


@pytest.mark.parametrize("times", [1, 2])
def test_giving_back_is_harmless(times):
    for _ in range(times):
        batcher.give_back_memory()
