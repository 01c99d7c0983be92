import asyncio
import os
import threading
from functools import partial

import pytest

from bertvision.errors import DataError
from bertvision.serving.http import queue as module
from bertvision.serving.http.queue import BusyError, ClosingError, ModelQueue, TooLargeError


class Speller:
    """Stands for a model: windows are words, which it gives back in capitals; it can be made to wait."""

    def __init__(self):
        self.slices, self.started, self.go_on = [], threading.Event(), threading.Event()
        self.go_on.set()

    def run(self, windows):
        self.slices.append(list(windows))
        self.started.set()
        assert self.go_on.wait(timeout=30)
        if "bad" in windows:
            raise DataError("bad item")
        if "worse" in windows:
            raise ZeroDivisionError
        return [word.upper() for word in windows]

    def spell(self, *words, function=None):
        """A request that is one pass over some words."""
        return lambda request: " ".join(request.run(function or self.run, words))


LIMITS = {"slice_tokens": 12, "max_tokens": 100, "max_queue": 100}


async def until(is_true):
    """Let others work until something holds."""
    async with asyncio.timeout(30):
        while not is_true():
            await asyncio.sleep(0)


async def submit_all(queue, functions):
    """Submit requests, each when the one before it waits for its turn or has ended."""
    tasks = []
    for each in functions:
        before = queue.waiting()[1].total()
        tasks.append(asyncio.ensure_future(queue.call("model", each)))
        await until(lambda before=before: queue.waiting()[1].total() > before or tasks[-1].done())
    return tasks


def run_all(functions, **limits):
    """Let requests wait together before work begins; gives their results or errors in order."""

    async def main():
        queue = ModelQueue(**{**LIMITS, **limits})
        tasks = await submit_all(queue, functions)
        async with asyncio.timeout(30), queue.working():
            return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(main())


def test_requests_that_wait_together_are_run_together():
    speller = Speller()
    requests = [speller.spell("one", "two"), speller.spell("six"), speller.spell("ten")]
    assert run_all(requests) == ["ONE TWO", "SIX", "TEN"]
    assert len(speller.slices) == 1


def test_a_slice_is_no_longer_than_it_may_be_but_a_window_is_never_cut():
    speller = Speller()
    words = ["four", "five", "sevenseven", "nine", "a_window_of_its_own", "ten"]
    assert run_all([speller.spell(*words)]) == [" ".join(words).upper()]
    assert speller.slices == [["four", "five"], ["sevenseven"], ["nine"], ["a_window_of_its_own"], ["ten"]]


def test_requests_take_turns_one_window_at_a_time():
    speller = Speller()
    words = [["aaaa", "bbbb", "cccc", "dddd"], ["eeee"], ["ffff", "gggg"], ["hhhh"]]
    assert run_all([speller.spell(*each) for each in words]) == [" ".join(each).upper() for each in words]
    assert speller.slices == [["aaaa", "eeee", "ffff"], ["bbbb", "hhhh", "gggg"], ["cccc", "dddd"]]


def test_a_long_request_has_its_share_of_the_slices_beside_any_number_of_short_ones():
    speller = Speller()
    run_all([speller.spell(*["big"] * 6), *(speller.spell("no") for _ in range(9))])
    assert speller.slices == [["big", "big", "no", "no", "no"]] * 3


@pytest.mark.parametrize(
    ("first", "other", "slices"),
    [
        (["a" * 7] * 2, ["bbbb"] * 3, [["a" * 7, "bbbb"], ["bbbb", "bbbb"], ["a" * 7]]),
        (["aa"] * 9, ["b" * 9], [["aa"] * 3, ["aa", "b" * 9], ["aa"] * 5]),
    ],
)
def test_where_windows_are_long_a_request_whose_turn_it_is_has_it(first, other, slices):
    speller = Speller()
    run_all([speller.spell(*first), *(speller.spell(word) for word in other)])
    assert speller.slices == slices


def test_what_comes_while_a_slice_runs_has_its_turn_in_the_next():
    speller = Speller()
    speller.go_on.clear()

    async def main():
        queue = ModelQueue(**LIMITS)
        async with queue.working():
            heavy = asyncio.ensure_future(queue.call("model", speller.spell(*["heavy"] * 5)))
            await until(speller.started.is_set)
            (light,) = await submit_all(queue, [speller.spell("light")])
            speller.go_on.set()
            return await asyncio.gather(heavy, light)

    asyncio.run(main())
    assert [sorted(each) for each in speller.slices[:2]] == [["heavy", "heavy"], ["heavy", "light"]]


def test_windows_that_are_run_differently_are_run_apart():
    speller = Speller()

    def count(windows):
        return [str(len(word)) for word in windows]

    assert run_all([speller.spell("one"), speller.spell("four", function=count)]) == ["ONE", "4"]
    assert speller.slices == [["one"]]


def test_a_request_may_run_a_model_several_times():
    speller = Speller()

    def twice(words, request):
        first = request.run(speller.run, words)
        assert request.run(speller.run, []) == []
        return first + request.run(speller.run, [word.lower() + "." for word in first])

    assert run_all([partial(twice, ["a", "b"]), partial(twice, ["c"])]) == [["A", "B", "A.", "B."], ["C", "C."]]
    assert sorted(map(len, speller.slices))[-1] == 3


@pytest.mark.parametrize(("item", "error"), [("bad", DataError), ("worse", ZeroDivisionError)])
def test_one_bad_item_fails_its_own_request_alone(item, error):
    speller = Speller()
    results = run_all([speller.spell("one"), speller.spell(item, "b"), speller.spell("six")])
    assert (results[0], results[2]) == ("ONE", "SIX")
    assert isinstance(results[1], error)


def test_an_error_while_a_request_is_cut_or_decoded_is_its_own():
    speller = Speller()

    def breaks(when, request):
        if when == "cut":
            raise DataError("no token")
        request.run(speller.run, ["one"])
        raise ZeroDivisionError

    cut, decoded, good = run_all([partial(breaks, "cut"), partial(breaks, "decoded"), speller.spell("two")])
    assert (type(cut), type(decoded), good) == (DataError, ZeroDivisionError, "TWO")


def test_one_request_at_a_time_is_decoded_and_none_beside_the_model():
    speller, inside, most = Speller(), [], []

    def decode(word, request):
        found = request.run(speller.run, [word])
        inside.append(word)
        most.append((len(inside), len(speller.slices)))
        for _ in range(1000):  # others may have their turn
            os.sched_yield()
        assert len(speller.slices) == most[-1][1]
        inside.remove(word)
        return found

    found = run_all([partial(decode, word * 4) for word in "abcdefgh"])
    assert found == [[word.upper() * 4] for word in "abcdefgh"]
    assert {number for number, _ in most} == {1}


def test_the_rest_of_a_request_that_was_given_up_is_not_run():
    speller = Speller()
    speller.go_on.clear()

    async def main():
        queue = ModelQueue(**LIMITS)
        async with queue.working():
            given_up = asyncio.ensure_future(queue.call("model", speller.spell(*["word"] * 20)))
            await until(speller.started.is_set)
            given_up.cancel()
            await asyncio.wait([given_up])
            (other,) = await submit_all(queue, [speller.spell("other")])
            speller.go_on.set()
            found = await other
            return found, [counts.total() for counts in queue.waiting()]

    assert asyncio.run(main()) == ("OTHER", [0, 0])
    assert speller.slices == [["word"] * 3, ["other"]]


def test_a_request_that_was_given_up_ends_at_its_next_run():
    speller, cut, ended = Speller(), threading.Event(), threading.Event()

    def slow(request):
        assert cut.wait(timeout=30)
        try:
            return request.run(speller.run, ["slow"])
        finally:
            ended.set()

    async def main():
        queue = ModelQueue(**LIMITS)
        async with queue.working():
            given_up = asyncio.ensure_future(queue.call("model", slow))
            await until(lambda: queue.waiting()[0].total() == 1)
            given_up.cancel()
            await asyncio.wait([given_up])
            cut.set()
            await until(ended.is_set)

    asyncio.run(main())
    assert speller.slices == []


def test_a_run_that_is_too_large_is_refused_before_anything_of_it_runs():
    speller = Speller()
    large, fitting = run_all([speller.spell(*["eleven chars"] * 9), speller.spell("a" * 100)])
    assert isinstance(large, TooLargeError)
    assert large.tokens == 9 * len("eleven chars")
    assert (fitting, speller.slices) == ("A" * 100, [["a" * 100]])


def test_no_more_requests_wait_than_may():
    speller = Speller()
    found = run_all([speller.spell("one")] * 3, max_queue=2)
    assert [isinstance(each, BusyError) for each in found] == [False, False, True]


def test_at_the_end_what_runs_is_answered_and_the_others_are_refused_at_once():
    speller = Speller()
    speller.go_on.clear()

    async def main():
        queue = ModelQueue(**LIMITS)
        answered, unfinished = await submit_all(queue, [speller.spell("answer"), speller.spell(*["long"] * 9)])
        async with queue.working():
            await until(speller.started.is_set)
            (waiting,) = await submit_all(queue, [speller.spell("waiting")])
            queue.close()
            with pytest.raises(ClosingError):
                await waiting  # while the slice still runs
            with pytest.raises(ClosingError):
                await queue.call("model", speller.spell("new"))
            assert not answered.done()
            speller.go_on.set()
            with pytest.raises(ClosingError):
                await unfinished
            return await answered

    assert asyncio.run(main()) == "ANSWER"
    assert len(speller.slices) == 1


def test_memory_goes_back_once_in_fifty_slices(monkeypatch):
    speller, given = Speller(), []
    monkeypatch.setattr(module, "give_back_memory", lambda: given.append(len(speller.slices)))
    run_all([speller.spell(*["a"] * 120)], slice_tokens=1, max_tokens=120)
    assert given == [50, 100]


def test_giving_memory_back_works_where_there_is_no_such_function(monkeypatch):
    module.give_back_memory()
    monkeypatch.setattr(module.ctypes, "CDLL", lambda name: object())
    module.give_back_memory()
