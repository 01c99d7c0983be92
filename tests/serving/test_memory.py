import pytest

from bertvision.serving import batcher


def test_memory_goes_back_once_in_fifty_runs_and_results_come_through(monkeypatch):
    given = []
    monkeypatch.setattr(batcher, "give_back_memory", lambda: given.append(number))
    run = batcher.giving_back(lambda how, items: [how, *items])
    for number in range(1, 121):
        assert run("so", [number]) == ["so", number]
    assert given == [50, 100]


def test_giving_back_works_where_there_is_no_such_function(monkeypatch):
    monkeypatch.setattr(batcher.ctypes, "CDLL", lambda name: object())
    batcher.give_back_memory()


@pytest.mark.parametrize("times", [1, 2])
def test_giving_back_is_harmless(times):
    for _ in range(times):
        batcher.give_back_memory()
