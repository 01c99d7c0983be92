import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from bertvision.errors import DataError
from bertvision.serving import batcher as module
from bertvision.serving.batcher import Batcher, BusyError, ClosingError, TooLargeError
from bertvision.serving.served import AskedWindows, run_steps


class Speller:
    """Stands for a model: windows are words, which it gives back in capitals; it can be made to wait."""

    def __init__(self):
        self.slices, self.started, self.go_on = [], threading.Event(), threading.Event()
        self.go_on.set()

    def run(self, windows, progress=None):
        self.slices.append(list(windows))
        self.started.set()
        assert self.go_on.wait(timeout=30)
        if "bad" in windows:
            raise DataError("bad item")
        if "worse" in windows:
            raise ZeroDivisionError
        return [word.upper() for word in windows]

    def spell(self, *words, run=None):
        """A request that is one pass over some words."""
        return " ".join((yield AskedWindows(run or self.run, words)))


LIMITS = {"slice_tokens": 12, "max_tokens": 100, "max_queue": 100, "max_wait": 0.0}


@asynccontextmanager
async def working(batcher):
    with ThreadPoolExecutor(1) as executor:
        async with batcher.working(executor):
            yield


async def until(is_true):
    """Let others work until something holds."""
    async with asyncio.timeout(30):
        while not is_true():
            await asyncio.sleep(0)


async def submit_all(batcher, requests):
    """Submit (client, steps), each when the one before it is cut and waits for its turn."""
    tasks = []
    for each in requests:
        tasks.append(asyncio.ensure_future(batcher.submit(*each)))
        for _ in range(2):  # it has begun to be cut
            await asyncio.sleep(0)
        await until(lambda: not batcher._preparing)
    return tasks


def run_all(requests, **limits):
    """Let requests wait together before work begins; gives their results or errors in order."""

    async def main():
        batcher = Batcher(**{**LIMITS, **limits})
        tasks = await submit_all(batcher, requests)
        async with asyncio.timeout(30), working(batcher):
            return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(main())


def test_requests_that_wait_together_are_run_together():
    speller = Speller()
    requests = [("a", speller.spell("one", "two")), ("b", speller.spell("six")), ("a", speller.spell("ten"))]
    assert run_all(requests) == ["ONE TWO", "SIX", "TEN"]
    assert len(speller.slices) == 1


def test_a_slice_is_no_longer_than_it_may_be_but_a_window_is_never_cut():
    speller = Speller()
    words = ["four", "five", "sevenseven", "nine", "a_window_of_its_own", "ten"]
    assert run_all([("a", speller.spell(*words))]) == [" ".join(words).upper()]
    assert speller.slices == [["four", "five"], ["sevenseven"], ["nine"], ["a_window_of_its_own"], ["ten"]]


def test_clients_take_turns_and_so_do_the_requests_of_a_client():
    speller = Speller()
    requests = [
        ("heavy", speller.spell("aaaa", "bbbb", "cccc", "dddd", "eeee")),
        ("heavy", speller.spell("ffff", "gggg")),
        ("light", speller.spell("hhhh")),
        ("other", speller.spell("iiii", "jjjj")),
    ]
    run_all(requests)
    assert speller.slices == [["aaaa", "hhhh", "iiii"], ["bbbb", "jjjj", "ffff"], ["cccc", "gggg", "dddd"], ["eeee"]]


def test_a_long_request_has_its_share_of_the_slices_beside_any_number_of_short_ones():
    speller = Speller()
    run_all([("a", speller.spell(*["big"] * 6)), *(("a", speller.spell("no")) for _ in range(9))])
    assert speller.slices == [["big", "big", "no", "no", "no"]] * 3


@pytest.mark.parametrize(
    ("first", "other", "slices"),
    [
        (["a" * 7] * 2, ["bbbb"] * 3, [["a" * 7, "bbbb"], ["a" * 7, "bbbb"], ["bbbb"]]),
        (["aa"] * 9, ["b" * 9], [["aa"] * 3, ["aa", "b" * 9], ["aa"] * 5]),
    ],
)
def test_where_windows_are_long_a_request_whose_turn_it_is_has_it(first, other, slices):
    speller = Speller()
    run_all([("a", speller.spell(*first)), *(("b", speller.spell(word)) for word in other)])
    assert speller.slices == slices


def test_what_comes_while_a_slice_runs_has_its_turn_in_the_next():
    speller = Speller()
    speller.go_on.clear()

    async def main():
        batcher = Batcher(**LIMITS)
        async with working(batcher):
            (heavy,) = await submit_all(batcher, [("heavy", speller.spell(*["heavy"] * 5))])
            await until(speller.started.is_set)
            (light,) = await submit_all(batcher, [("light", speller.spell("light"))])
            speller.go_on.set()
            return await asyncio.gather(heavy, light)

    asyncio.run(main())
    assert [sorted(each) for each in speller.slices[:2]] == [["heavy", "heavy"], ["heavy", "light"]]


def test_windows_that_are_run_differently_are_run_apart():
    speller = Speller()

    def count(windows, progress=None):
        return [str(len(word)) for word in windows]

    assert run_all([("a", speller.spell("one")), ("a", speller.spell("four", run=count))]) == ["ONE", "4"]
    assert speller.slices == [["one"]]


def test_a_request_may_take_several_steps_and_ends_as_if_it_were_alone():
    speller = Speller()

    def twice(*words):
        first = yield AskedWindows(speller.run, words)
        yield AskedWindows(speller.run, [])
        second = yield AskedWindows(speller.run, [word.lower() + "." for word in first])
        return first + second

    assert run_steps(twice("a", "b")) == ["A", "B", "A.", "B."]
    speller.slices.clear()
    assert run_all([("a", twice("a", "b")), ("b", twice("c"))]) == [["A", "B", "A.", "B."], ["C", "C."]]
    assert len(speller.slices) == 2


@pytest.mark.parametrize(("item", "error"), [("bad", DataError), ("worse", ZeroDivisionError)])
def test_one_bad_item_fails_its_own_request_alone(item, error):
    speller = Speller()
    results = run_all([("a", speller.spell("one")), ("b", speller.spell(item, "b")), ("c", speller.spell("six"))])
    assert (results[0], results[2]) == ("ONE", "SIX")
    assert isinstance(results[1], error)


def test_an_error_while_a_request_is_cut_or_decoded_is_its_own():
    speller = Speller()

    def breaks(when):
        if when == "cut":
            raise DataError("no token")
        yield AskedWindows(speller.run, ["one"])
        raise ZeroDivisionError

    cut, decoded, good = run_all([("a", breaks("cut")), ("a", breaks("decoded")), ("a", speller.spell("two"))])
    assert (type(cut), type(decoded), good) == (DataError, ZeroDivisionError, "TWO")


def test_the_rest_of_a_request_that_was_given_up_is_not_run():
    speller = Speller()
    speller.go_on.clear()

    async def main():
        batcher = Batcher(**LIMITS)
        async with working(batcher):
            (given_up,) = await submit_all(batcher, [("a", speller.spell(*["word"] * 20))])
            await until(speller.started.is_set)
            given_up.cancel()
            (other,) = await submit_all(batcher, [("b", speller.spell("other"))])
            speller.go_on.set()
            found = await other
            return found, batcher.num_waiting, batcher.tokens_waiting

    assert asyncio.run(main()) == ("OTHER", 0, 0)
    assert speller.slices == [["word"] * 3, ["other"]]


def test_a_request_that_is_too_large_is_refused_before_anything_of_it_runs():
    speller = Speller()
    large, fitting = run_all([("a", speller.spell(*["eleven chars"] * 9)), ("b", speller.spell("a" * 100))])
    assert isinstance(large, TooLargeError)
    assert large.tokens == 9 * len("eleven chars")
    assert (fitting, speller.slices) == ("A" * 100, [["a" * 100]])


def test_what_later_steps_may_want_run_counts_before_anything_runs():
    speller = Speller()

    def spell(word, later):
        return (yield AskedWindows(speller.run, [word], later))

    requests = [
        ("a", spell("a" * 60, 41)),
        ("a", spell("b" * 60, 40)),
        ("a", spell("c" * 60, 40)),
        ("a", spell("d", 0)),
    ]
    found = run_all(requests)
    assert [type(each) for each in found] == [TooLargeError, list, list, BusyError]
    assert found[0].tokens == 101


def test_a_client_may_not_have_more_tokens_waiting_than_twice_a_request_but_another_may():
    speller = Speller()
    words = [("a", "a" * 100), ("a", "b" * 90), ("a", "c" * 20), ("b", "d" * 100), ("b", "e" * 100), ("c", "f" * 20)]
    found = run_all([(client, speller.spell(word)) for client, word in words])
    assert [type(each) for each in found] == [str, str, BusyError, str, str, BusyError]


def test_a_client_may_not_have_more_requests_waiting_than_its_queue_but_another_may():
    speller = Speller()
    found = run_all([(client, speller.spell("one")) for client in "aaabbcc"], max_queue=2)
    assert [isinstance(each, BusyError) for each in found] == [False, False, True, False, False, True, True]


def test_a_client_is_told_to_come_back_when_what_waits_should_be_done(monkeypatch):
    times = iter([0.0, 5.0])
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(times))
    speller = Speller()

    async def main():
        batcher = Batcher(**{**LIMITS, "max_queue": 1})
        async with working(batcher):
            await batcher.submit("a", speller.spell("a" * 10))  # 10 tokens in 5 seconds
        batcher._closing = False
        await submit_all(batcher, [("a", speller.spell("a" * 25))])
        with pytest.raises(BusyError) as error:
            await batcher.submit("a", speller.spell("b"))
        return error.value.retry_after

    assert asyncio.run(main()) == 13  # 12.5 seconds of work


def test_at_the_end_what_runs_is_answered_and_the_others_are_refused_at_once():
    speller = Speller()
    speller.go_on.clear()

    async def main():
        batcher = Batcher(**LIMITS)
        async with working(batcher):
            requests = [("a", speller.spell("answered")), ("b", speller.spell(*["long"] * 9))]
            answered, unfinished = await submit_all(batcher, requests)
            await until(speller.started.is_set)
            (waiting,) = await submit_all(batcher, [("c", speller.spell("waiting"))])
            batcher.stop()
            with pytest.raises(ClosingError):
                await waiting  # while the slice still runs
            with pytest.raises(ClosingError):
                await batcher.submit("d", speller.spell("new"))
            assert not answered.done()
            speller.go_on.set()
            with pytest.raises(ClosingError):
                await unfinished
            return await answered

    assert asyncio.run(main()) == "ANSWERED"
    assert len(speller.slices) == 1


def test_memory_goes_back_once_in_fifty_slices(monkeypatch):
    speller, given = Speller(), []
    monkeypatch.setattr(module, "give_back_memory", lambda: given.append(len(speller.slices)))
    run_all([("a", speller.spell(*["a"] * 120))], slice_tokens=1, max_tokens=120)
    assert given == [50, 100]
