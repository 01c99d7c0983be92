"""Requests that come at about the same time -> one run of the model."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from bertvision.errors import BertVisionError

Run = Callable[[Any, list[Any]], list[Any]]  # (how, items) -> a result for each item
Note = Callable[[int, float], None]  # told of every run: items, seconds


class BusyError(Exception):
    """As many requests wait as may."""


@dataclass(frozen=True)
class Job:
    """One request's items, and how they are to be run."""

    how: Hashable
    items: Sequence[Any]
    done: "asyncio.Future[list[Any]]"


class Batcher:
    """Runs requests one batch after another; what comes while a batch runs, or within `max_wait`, makes up the next.

    Requests of one batch are run together where they are run in the same way (`how`).
    """

    def __init__(
        self, run: Run, *, max_items: int, max_wait: float, max_queue: int, note: Note = lambda items, seconds: None
    ) -> None:
        self._run, self._max_items, self._max_wait, self._max_queue = run, max_items, max_wait, max_queue
        self._note = note
        self._waiting: deque[Job] = deque()
        self._changed = asyncio.Event()
        self._closing = False

    @property
    def num_waiting(self) -> int:
        """Count the requests that wait."""
        return len(self._waiting)

    async def submit(self, how: Hashable, items: Sequence[Any]) -> list[Any]:
        """Give a result for each item; refuse where too many requests wait."""
        if len(self._waiting) >= self._max_queue:
            raise BusyError
        job = Job(how, items, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        self._changed.set()
        return await job.done

    @asynccontextmanager
    async def working(self, executor: Executor) -> AsyncIterator[None]:
        """Work until the block ends, and then on until nothing waits any more."""
        work = asyncio.create_task(self._work(executor))
        try:
            yield
        finally:
            self._closing = True
            self._changed.set()
            await work

    async def _work(self, executor: Executor) -> None:
        while self._waiting or not self._closing:
            self._changed.clear()
            if not self._waiting:
                await self._changed.wait()
            elif sum(len(job.items) for job in self._waiting) < self._max_items and not self._closing:
                await asyncio.sleep(self._max_wait)  # for company
            for jobs in self._take():
                await self._run_together(executor, jobs)

    def _take(self) -> list[list[Job]]:
        """Take the jobs of one batch, in groups that are run in the same way."""
        taken: list[Job] = []
        while self._waiting and (not taken or self._fits(taken)):
            job = self._waiting.popleft()
            if not job.done.done():  # nobody waits for those that were given up
                taken.append(job)
        taken.sort(key=lambda job: repr(job.how))
        return [list(group) for _, group in groupby(taken, key=lambda job: job.how)]

    def _fits(self, taken: Sequence[Job]) -> bool:
        return sum(len(job.items) for job in [*taken, self._waiting[0]]) <= self._max_items

    async def _run_together(self, executor: Executor, jobs: Sequence[Job]) -> None:
        items = [item for job in jobs for item in job.items]
        try:
            results = await self._run_once(executor, jobs[0].how, items)
        except BertVisionError as error:
            if len(jobs) > 1:  # one request's bad text is not the others' fault
                for job in jobs:
                    await self._run_together(executor, [job])
            else:
                _fail(jobs, error)
        except Exception as error:  # noqa: BLE001 (whatever it is, the next batch must run)
            _fail(jobs, error)
        else:
            found = iter(results)
            for job in jobs:
                own = [next(found) for _ in job.items]
                if not job.done.done():
                    job.done.set_result(own)

    async def _run_once(self, executor: Executor, how: Hashable, items: list[Any]) -> list[Any]:
        started = time.perf_counter()
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, self._run, how, items)
        finally:
            self._note(len(items), time.perf_counter() - started)


def _fail(jobs: Sequence[Job], error: Exception) -> None:
    for job in jobs:
        if not job.done.done():
            job.done.set_exception(error)
