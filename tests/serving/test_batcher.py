import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from bertvision.errors import DataError
from bertvision.serving.batcher import Batcher, BusyError


class Doubler:
    """Doubles numbers, keeps what it was given, and can be made to wait."""

    def __init__(self):
        self.calls, self.started, self.go_on = [], threading.Event(), threading.Event()
        self.go_on.set()

    def __call__(self, how, items):
        self.calls.append((how, list(items)))
        self.started.set()
        assert self.go_on.wait(timeout=30)
        if "bad" in items:
            raise DataError("bad item")
        if "worse" in items:
            raise ZeroDivisionError
        return [2 * item for item in items]


def run_all(doubler, requests, **limits):
    """Submit requests (how, items) at once; give their results or errors in order."""
    limits = {"max_items": 8, "max_wait": 0.0, "max_queue": 100, **limits}

    async def main():
        batcher = Batcher(doubler, **limits)
        waiting = [asyncio.ensure_future(batcher.submit(*request)) for request in requests]
        await asyncio.sleep(0)  # all of them are in the queue before work begins
        with ThreadPoolExecutor(1) as executor:
            async with batcher.working(executor):
                return await asyncio.gather(*waiting, return_exceptions=True)

    return asyncio.run(main())


def test_requests_that_wait_together_are_run_together():
    doubler = Doubler()
    assert run_all(doubler, [("a", [1, 2]), ("a", [3]), ("a", [4, 5])]) == [[2, 4], [6], [8, 10]]
    assert doubler.calls == [("a", [1, 2, 3, 4, 5])]


def test_a_batch_holds_no_more_items_than_it_may_but_one_request_is_never_split():
    doubler = Doubler()
    requests = [("a", [1, 2, 3]), ("a", [4, 5]), ("a", list(range(6))), ("a", [6])]
    assert run_all(doubler, requests, max_items=4) == [[2 * n for n in items] for _, items in requests]
    assert [len(items) for _, items in doubler.calls] == [3, 2, 6, 1]


def test_requests_that_want_it_differently_are_run_apart():
    doubler = Doubler()
    assert run_all(doubler, [("a", [1]), ("b", [2]), ("a", [3])]) == [[2], [4], [6]]
    assert doubler.calls == [("a", [1, 3]), ("b", [2])]


def test_one_bad_request_does_not_spoil_its_company():
    results = run_all(Doubler(), [("a", [1]), ("a", ["bad"]), ("a", [3])])
    assert (results[0], results[2]) == ([2], [6])
    assert isinstance(results[1], DataError)


def test_work_goes_on_after_an_error_that_nobody_foresaw():
    results = run_all(Doubler(), [("a", ["worse"]), ("b", [2])])
    assert isinstance(results[0], ZeroDivisionError)
    assert results[1] == [4]


def test_a_full_queue_refuses_and_what_was_accepted_is_finished_on_closing():
    doubler = Doubler()

    async def main():
        batcher = Batcher(doubler, max_items=8, max_wait=0.0, max_queue=2)
        waiting = [asyncio.ensure_future(batcher.submit("a", [number])) for number in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await asyncio.wait_for(batcher.submit("a", [3]), 5)
        with ThreadPoolExecutor(1) as executor:
            async with batcher.working(executor):
                pass  # closed at once
        return [task.result() for task in waiting]

    assert asyncio.run(main()) == [[0], [2]]


def test_a_request_that_was_given_up_is_not_run():
    doubler = Doubler()

    async def main():
        batcher = Batcher(doubler, max_items=8, max_wait=0.0, max_queue=9)
        tasks = [asyncio.ensure_future(batcher.submit("a", [number])) for number in (1, 2)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.sleep(0)
        with ThreadPoolExecutor(1) as executor:
            async with batcher.working(executor):
                return await tasks[1]

    assert asyncio.run(main()) == [4]
    assert doubler.calls == [("a", [2])]


def test_what_comes_while_a_batch_runs_makes_up_the_next():
    doubler = Doubler()
    doubler.go_on.clear()

    async def main():
        batcher = Batcher(doubler, max_items=8, max_wait=0.0, max_queue=9)
        with ThreadPoolExecutor(1) as executor:
            async with batcher.working(executor):
                first = asyncio.ensure_future(batcher.submit("a", [1]))
                await asyncio.to_thread(doubler.started.wait, 30)
                others = [asyncio.ensure_future(batcher.submit("a", [number])) for number in (2, 3)]
                await asyncio.sleep(0)
                doubler.go_on.set()
                return await asyncio.gather(first, *others)

    assert asyncio.run(main()) == [[2], [4], [6]]
    assert doubler.calls == [("a", [1]), ("a", [2, 3])]
