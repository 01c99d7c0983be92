"""Requests that come at about the same time -> slices of work, in which every one of them has its turn."""

import asyncio
import ctypes
import math
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

from bertvision.serving.served import AskedWindows, Steps

Note = Callable[[int, float], None]  # told of every slice: tokens, seconds
EVERY = 50  # slices until memory goes back: some milliseconds of work, about twice a minute on a busy CPU
LONGEST_WAIT = 60  # seconds that a client is told to wait at most
FIRST = 0.5  # of a slice is for the request that came first; with 0.6, p99 of twenty others was 3.5 times theirs alone
SHARE = 2  # so many times what one client may have waiting is what all of them may


class BusyError(Exception):
    """As much waits as may; `retry_after` is in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(retry_after)
        self.retry_after = retry_after


class TooLargeError(Exception):
    """A request is more work than one may be."""

    def __init__(self, tokens: int) -> None:
        super().__init__(tokens)
        self.tokens = tokens


class ClosingError(Exception):
    """The server is about to end."""


@dataclass(eq=False)
class Job:
    """A request on its way: what it wants run, how much of that is taken into slices, and what came back."""

    client: str
    steps: Steps[Any]
    done: "asyncio.Future[Any]"
    asked: AskedWindows | None = None
    taken: int = 0  # windows
    tokens: int = 0  # of windows that are not taken yet, and those that later steps may want run
    number: int = field(default_factory=count().__next__)  # in the order in which requests came
    results: dict[int, Any] = field(default_factory=dict)  # by window
    end: Callable[[], None] | None = None  # what tells who waits for it, once there is something to tell

    @property
    def windows(self) -> Sequence[Any]:
        """Return what the step that it is at wants run."""
        return () if self.asked is None else self.asked.windows

    def advance(self) -> None:
        """Take a step with the results of the one before, and on until there are windows to run, or the end."""
        try:
            while not self.end and len(self.results) == len(self.windows):
                given = None if self.asked is None else [self.results[place] for place in range(len(self.windows))]
                self.asked = self.steps.send(given)  # type: ignore[arg-type]  # None starts a generator
                self.results, self.taken, self.tokens = {}, 0, sum(map(len, self.windows)) + self.asked.later
        except StopIteration as end:
            self.end = partial(self.done.set_result, end.value)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is this request's own)
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """End with an error."""
        self.end = partial(self.done.set_exception, error)

    def take(self) -> tuple["Job", int]:
        """Take its next window into a slice."""
        self.taken, self.tokens = self.taken + 1, self.tokens - self.next_size
        return self, self.taken - 1

    @property
    def next_size(self) -> int:
        """Count the tokens of its next window."""
        return len(self.windows[self.taken])

    def tell(self) -> None:
        """Hand the end to who waits for it, if anybody still does."""
        if self.end is not None and not self.done.done():
            self.end()


class Turns:
    """Jobs that have windows to run: clients take turns, and so do the jobs of a client, one window at a time.

    The job that came first has up to `FIRST` of a slice for its turn. A long one beside many short ones, of which new
    ones keep coming, would have next to nothing of the time otherwise.
    """

    def __init__(self) -> None:
        self._jobs_by_client: dict[str, deque[Job]] = {}  # the client whose turn it is comes first

    def add(self, job: Job) -> None:
        """Let a job wait for its turn."""
        self._jobs_by_client.setdefault(job.client, deque()).append(job)

    def __bool__(self) -> bool:
        return bool(self._jobs_by_client)

    def take(self, tokens: int) -> list[tuple[Job, int]]:
        """Choose jobs' windows for one slice; a window that is longer than a slice makes up its own."""
        taken = self._take_from_first(tokens)
        tokens -= sum(len(job.windows[place]) for job, place in taken)
        while self._jobs_by_client:
            job = next(iter(self._jobs_by_client.values()))[0]
            if not job.done.done():  # nobody waits for those that were given up
                if taken and job.next_size > tokens:
                    break
                tokens -= job.next_size
                taken.append(job.take())
            self._pass_on(job)
        return taken

    def _take_from_first(self, tokens: int) -> list[tuple[Job, int]]:
        """Take windows of the job that came first, up to its share; the job whose turn it is must fit beside."""
        waiting = [job for jobs in self._jobs_by_client.values() for job in jobs if not job.done.done()]
        if not waiting:
            return []
        job, taken = min(waiting, key=lambda each: each.number), []
        left = min(int(FIRST * tokens), tokens - waiting[0].next_size)
        while job.taken < len(job.windows) and job.next_size <= left:
            left -= job.next_size
            taken.append(job.take())
        if taken:
            self._pass_on(job)
        return taken

    def _pass_on(self, job: Job) -> None:
        """Put a job, unless nothing of it is left to take, and its client behind the others."""
        jobs = self._jobs_by_client.pop(job.client)
        jobs.remove(job)
        if job.taken < len(job.windows) and not job.done.done():
            jobs.append(job)
        if jobs:
            self._jobs_by_client[job.client] = jobs


class Batcher:
    """Runs the windows of requests in slices; what comes while one runs, or within `max_wait`, has a turn in the next.

    Between slices requests are given up that nobody waits for any more. A client may have `max_queue` requests and
    twice `max_tokens` tokens waiting, all clients together `SHARE` times as much; a request is at most `max_tokens`.
    """

    def __init__(
        self,
        *,
        slice_tokens: int,
        max_tokens: int,
        max_queue: int,
        max_wait: float,
        note: Note = lambda tokens, seconds: None,
    ) -> None:
        self._slice_tokens, self._max_tokens, self._max_queue = slice_tokens, max_tokens, max_queue
        self._max_wait, self._note = max_wait, note
        self._jobs: set[Job] = set()  # all that somebody waits for
        self._running: set[Job] = set()  # in the slice that runs now
        self._turns = Turns()
        self._preparing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by client
        self._changed = asyncio.Event()
        self._closing = False
        self._tokens, self._seconds = 0, 0.0  # of all slices
        self._numbers = count(1)

    @property
    def num_waiting(self) -> int:
        """Count the requests that wait or are worked on."""
        return len(self._jobs)

    @property
    def tokens_waiting(self) -> int:
        """Count the tokens that no slice has taken yet."""
        return _tokens(self._jobs)

    async def submit(self, client: str, steps: Steps[Any]) -> Any:  # noqa: ANN401 (what the steps end with)
        """Return what a request ends with; refuse one that is too large, or more than may wait."""
        if self._closing:
            raise ClosingError
        own = [job for job in self._jobs if job.client == client]
        if len(own) >= self._max_queue or len(self._jobs) >= SHARE * self._max_queue:
            raise self._busy()
        job = Job(client, steps, asyncio.get_running_loop().create_future())
        self._jobs.add(job)
        preparing = asyncio.create_task(self._prepare(job))
        try:
            return await job.done
        finally:
            preparing.cancel()
            self._jobs.discard(job)

    def stop(self) -> None:
        """Refuse everything but what runs now."""
        self._closing = True
        self._end(self._jobs - self._running)
        self._changed.set()

    @asynccontextmanager
    async def working(self, executor: Executor) -> AsyncIterator[None]:
        """Work until the block ends or `stop` is called; what is not answered by then is refused."""
        work = asyncio.create_task(self._work(executor))
        try:
            yield
        finally:
            self.stop()
            await work

    async def _prepare(self, job: Job) -> None:
        """Cut a request into windows, one of a client at a time, and let it wait for its turn if it is not too much."""
        async with self._preparing.setdefault(job.client, asyncio.Lock()):
            await asyncio.to_thread(job.advance)
        waiting = [each for each in self._jobs if each is not job]
        own = _tokens(each for each in waiting if each.client == job.client)
        most = 2 * self._max_tokens
        if job.tokens > self._max_tokens:
            job.fail(TooLargeError(job.tokens))
        elif own + job.tokens > most or _tokens(waiting) + job.tokens > SHARE * most:
            job.fail(self._busy())
        self._go_on(job)

    def _go_on(self, job: Job) -> None:
        if job.end is not None:
            job.tell()
        elif not job.done.done():
            self._turns.add(job)
            self._changed.set()

    def _busy(self) -> BusyError:
        """Say when what waits now should be done."""
        speed = self._tokens / self._seconds if self._seconds else math.inf
        return BusyError(min(max(math.ceil(self.tokens_waiting / speed), 1), LONGEST_WAIT))

    async def _work(self, executor: Executor) -> None:
        while not self._closing:
            self._changed.clear()
            if not self._turns:
                await self._changed.wait()
            elif self.tokens_waiting < self._slice_tokens:
                await asyncio.sleep(self._max_wait)  # for company
            if taken := self._turns.take(self._slice_tokens):
                await self._run(executor, taken)
        self._end(self._jobs)

    def _end(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            job.fail(ClosingError())
            job.tell()

    async def _run(self, executor: Executor, taken: Sequence[tuple[Job, int]]) -> None:
        self._running = {job for job, _ in taken}
        tokens, started = sum(len(job.windows[place]) for job, place in taken), time.perf_counter()
        await asyncio.get_running_loop().run_in_executor(executor, self._run_slice, taken)
        seconds = time.perf_counter() - started
        self._tokens, self._seconds = self._tokens + tokens, self._seconds + seconds
        self._note(tokens, seconds)
        for job in self._running:
            if job.end is not None or not job.taken:  # it ended, or has taken a step
                self._go_on(job)
        self._running = set()

    def _run_slice(self, taken: Sequence[tuple[Job, int]]) -> None:
        """Run windows together that are run in the same way, then let those requests go on that have all of theirs."""
        by_run: dict[Any, list[tuple[Job, int]]] = defaultdict(list)
        for job, place in taken:
            assert job.asked is not None
            by_run[job.asked.run].append((job, place))
        for run, group in by_run.items():
            _run_together(run, group)
        for job in {job: None for job, _ in taken}:
            job.advance()
        if next(self._numbers) % EVERY == 0:
            give_back_memory()


def _run_together(run: Callable[..., list[Any]], taken: Sequence[tuple[Job, int]]) -> None:
    """Run windows; where that fails, those of each request apart, so that a bad one fails alone."""
    try:
        results = run([job.windows[place] for job, place in taken])
    except Exception as error:  # noqa: BLE001 (whatever it is, the next slice must run)
        jobs = {job: None for job, _ in taken}
        if len(jobs) == 1:
            taken[0][0].fail(error)
            return
        for job in jobs:
            _run_together(run, [each for each in taken if each[0] is job])
    else:
        for (job, place), result in zip(taken, results, strict=True):
            job.results[place] = result


def _tokens(jobs: Iterable[Job]) -> int:
    return sum(job.tokens for job in jobs)


def give_back_memory() -> None:
    """Hand free pages back to the system, which the allocator keeps after batches of many sizes (glibc).

    Without this, 20,000 requests left a server 218 MB larger; with it 80 MB, of these 14 MB in the second half.
    Elsewhere the allocator has ways of its own.
    """
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
