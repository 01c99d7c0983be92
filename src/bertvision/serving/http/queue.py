"""Requests take turns at the models.

A request is a call in a thread of its own: wherever it runs a model, it waits there until its windows have run. All
models run in one thread, in slices in which every request that waits has its turn.
"""

import asyncio
import ctypes
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Sequence, Sized
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bertvision.model_config import Calibration
from bertvision.predictions.logits import Logits
from bertvision.progress import SILENT, Progress
from bertvision.records import RunRecord
from bertvision.serving.model import Engine, WindowParts
from bertvision.settings import Settings
from bertvision.windows.window import Window

Note = Callable[[str, int, float], None]  # told of every run of a model: its name, tokens, seconds
Result = TypeVar("Result")
CUTTING = 2  # requests that are cut into windows at once: with any number of them, p99 was 1.6 times as long
EVERY = 50  # slices until memory goes back: some milliseconds of work, about twice a minute on a busy CPU
FIRST = 0.5  # of a slice is for the request that came first; with 0.6, p99 of twenty others was 3.5 times theirs alone


class BusyError(Exception):
    """As many requests wait as may."""


class TooLargeError(Exception):
    """A request is more work than one may be."""

    def __init__(self, tokens: int) -> None:
        super().__init__(tokens)
        self.tokens = tokens


class ClosingError(Exception):
    """The server is about to end."""


class GivenUpError(Exception):
    """Nobody waits for the answer any more."""


class Run(NamedTuple):
    """How windows are run; those of several requests together where it is the same."""

    model: str
    function: Callable[..., list[Any]]  # (windows, *options) -> a result for each
    options: tuple[Hashable, ...] = ()


class Job:
    """Windows that a request wants run, how many of them are taken into slices, and what came back."""

    def __init__(self, request: "Request", run: Run, windows: Sequence[Sized]) -> None:
        self.request, self.run, self.windows = request, run, windows
        self.future: Future[list[Any]] = Future()  # done as soon as nobody waits for more of it
        self.results: list[Any] = []
        self.taken = 0  # windows
        self.tokens = sum(map(len, windows))  # of those that are not taken yet

    @property
    def next_size(self) -> int:
        """Count the tokens of the next window; 0 where all are taken."""
        return len(self.windows[self.taken]) if self.taken < len(self.windows) else 0

    def take(self) -> "Turn":
        """Take the next window into a slice."""
        turn = Turn(self, self.windows[self.taken])
        self.tokens -= self.next_size
        self.taken += 1
        return turn


class Turn(NamedTuple):
    """A window that is run in a slice."""

    job: Job
    window: Sized


class Turns:
    """Jobs that have windows to run: they take turns, one window at a time.

    The one whose request came first has up to `FIRST` of a slice for its turn. A long one beside many short ones, of
    which new ones keep coming, would have next to nothing of the time otherwise.
    """

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()  # the one whose turn it is comes first

    def add(self, job: Job) -> None:
        """Let a job wait for its turn."""
        self._jobs.append(job)

    def take(self, tokens: int) -> list[Turn]:
        """Choose jobs' windows for one slice; a window that is longer than a slice makes up its own."""
        self._jobs = deque(job for job in self._jobs if not job.future.done())  # the others were given up
        if not self._jobs:
            return []
        taken = self._take_from_oldest(tokens)
        tokens -= sum(len(turn.window) for turn in taken)
        while self._jobs and (not taken or self._jobs[0].next_size <= tokens):
            job = self._jobs.popleft()
            tokens -= job.next_size
            taken.append(job.take())
            self._line_up(job)
        return taken

    def _take_from_oldest(self, tokens: int) -> list[Turn]:
        """Take windows of the request that came first, up to its share; the job whose turn it is must fit beside."""
        job = min(self._jobs, key=lambda each: each.request.number)
        left = min(int(FIRST * tokens), tokens - self._jobs[0].next_size)
        taken = []
        while 0 < job.next_size <= left:
            left -= job.next_size
            taken.append(job.take())
        if taken:
            self._jobs.remove(job)
            self._line_up(job)
        return taken

    def _line_up(self, job: Job) -> None:
        """Put a job behind the others, unless nothing of it is left to take."""
        if job.next_size:
            self._jobs.append(job)


class ModelQueue:
    """Runs the windows of requests in slices; what comes while one runs has a turn in the next.

    At most `max_queue` requests wait, each for at most `max_tokens` tokens at once.
    """

    def __init__(
        self,
        *,
        slice_tokens: int,
        max_tokens: int,
        max_queue: int,
        note: Note = lambda model, tokens, seconds: None,
    ) -> None:
        self._slice_tokens, self._max_tokens, self._max_queue = slice_tokens, max_tokens, max_queue
        self._note = note
        self._threads = ThreadPoolExecutor(max_queue, "request")
        self.beginning = threading.Semaphore(CUTTING)
        self._requests: set[Request] = set()  # all that somebody waits for; the event loop's own
        self._turns = Turns()
        self._changed = threading.Condition()  # of turns, and of closing
        self._running: set[Request] = set()  # in the slice that runs now
        self._is_closing = False

    async def call(self, model: str, function: Callable[["Request"], Result]) -> Result:
        """Return what a request comes to, which may run a model any number of times; refuse more than may wait."""
        if self._is_closing:
            raise ClosingError
        if len(self._requests) >= self._max_queue:
            raise BusyError
        request = Request(self, model)
        self._requests.add(request)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, request.answer, function)
        finally:
            request.give_up(GivenUpError())
            self._requests.discard(request)

    def waiting(self) -> tuple[Counter[str], Counter[str]]:
        """Count by model the requests that wait or are worked on, and their tokens that no slice has taken yet."""
        requests, tokens = Counter[str](), Counter[str]()
        for request in self._requests:
            requests[request.model] += 1
            tokens[request.model] += request.tokens
        return requests, tokens

    def check_size(self, tokens: int) -> None:
        """Refuse more tokens than a request may have at once."""
        if tokens > self._max_tokens:
            raise TooLargeError(tokens)

    def add(self, job: Job) -> None:
        """Let a job of a request wait for its turn."""
        with self._changed:
            if self._is_closing:
                raise ClosingError
            self._turns.add(job)
            self._changed.notify()

    def close(self) -> None:
        """Refuse everything but what runs now."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
            waiting = self._requests - self._running
        _refuse(waiting)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Run models until the block ends; what is not answered by then is refused."""
        thread = threading.Thread(target=self._work, name="models")
        thread.start()
        try:
            yield
        finally:
            self.close()
            await asyncio.to_thread(thread.join)
            await asyncio.to_thread(self._threads.shutdown)

    def _work(self) -> None:
        """Run slice after slice, in the thread of the models."""
        for number in count(1):
            with self._changed:
                self._running = set()
                while not (taken := self._turns.take(self._slice_tokens)) and not self._is_closing:
                    self._changed.wait()
                if self._is_closing:
                    return
                self._running = {turn.job.request for turn in taken}
            self._run_slice(taken)
            if self._is_closing:
                _refuse(self._running)
            if number % EVERY == 0:
                give_back_memory()

    def _run_slice(self, taken: Sequence[Turn]) -> None:
        """Run windows together that are run in the same way, then let those requests go on that have all of theirs."""
        by_run: dict[Run, list[Turn]] = {}
        for turn in taken:
            by_run.setdefault(turn.job.run, []).append(turn)
        for run, turns in by_run.items():
            started = time.perf_counter()
            _run_together(run, turns)
            self._note(run.model, sum(len(turn.window) for turn in turns), time.perf_counter() - started)
        for job in {turn.job: None for turn in taken}:
            if len(job.results) == len(job.windows):
                job.request.resume(partial(job.future.set_result, job.results))


class Request:
    """A call that is answered in a thread of its own, and its windows' way through the queue."""

    _numbers = count()

    def __init__(self, queue: ModelQueue, model: str) -> None:
        self.model, self.number = model, next(self._numbers)  # in the order in which requests came
        self._queue = queue
        self._job: Job | None = None
        self._rests = threading.Event()  # set while its thread waits for a model, and when it is done
        self._is_beginning = True  # it has not rested yet
        self._error: Exception | None = None  # that it was given up with

    @property
    def tokens(self) -> int:
        """Count the tokens that no slice has taken yet."""
        return 0 if self._job is None or self._job.future.done() else self._job.tokens

    def answer(self, function: Callable[["Request"], Result]) -> Result:
        """Make the call, in the request's own thread, until it rests for the first time beside few others."""
        self._queue.beginning.acquire()
        try:
            if self._error is not None:
                raise self._error
            return function(self)
        finally:
            self._rest()

    def run(self, function: Callable[..., list[Any]], windows: Sequence[Sized], *options: Hashable) -> list[Any]:
        """Wait until windows have run, and return a result for each; whoever was given up ends here."""
        if not windows:
            return []
        job = Job(self, Run(self.model, function, options), windows)
        self._queue.check_size(job.tokens)
        self._job = job
        if self._error is not None:
            raise self._error
        self._queue.add(job)
        self._rest()
        return job.future.result()

    def resume(self, tell: Callable[[], None]) -> None:
        """Let the thread go on, and wait until it rests again: beside the next slice it would slow both down.

        What a thread does between two passes is Python, and only one thread runs Python at a time.
        """
        self._rests.clear()
        try:
            tell()
        except InvalidStateError:  # it was given up
            return
        self._rests.wait()

    def _rest(self) -> None:
        """Let others work."""
        if self._is_beginning:
            self._is_beginning = False
            self._queue.beginning.release()
        self._rests.set()

    def give_up(self, error: Exception) -> None:
        """Let the thread end with an error where it waits for a model, or at its next run."""
        self._error = error
        if self._job is not None:
            with suppress(InvalidStateError):  # its windows have run
                self._job.future.set_exception(error)


class QueuedEngine(Engine):
    """A model's engine behind the queue, for one request."""

    def __init__(self, engine: Engine, request: Request) -> None:
        self._engine, self._request = engine, request

    def logits(self, windows: Sequence[Window], tokens: int, progress: Progress = SILENT) -> list[Logits]:
        """Wait until the windows have had their turn."""
        return self._request.run(self._engine.logits, windows, tokens)

    def parts(self, windows: Sequence[Window], tokens: int, progress: Progress = SILENT) -> list[WindowParts]:
        """Wait until the windows have had their turn."""
        return self._request.run(self._engine.parts, windows, tokens)

    def check_parts(self) -> None:
        """Refuse a model whose logits cannot be taken apart."""
        self._engine.check_parts()

    @property
    def settings_fingerprint(self) -> Settings:
        """Return what decides the logits, beside the encoder."""
        return self._engine.settings_fingerprint

    @property
    def is_on_gpu(self) -> bool:
        """Return whether a GPU runs it."""
        return self._engine.is_on_gpu

    @property
    def loaded_with(self) -> Settings:
        """Return the options of `load` that it was loaded with."""
        return self._engine.loaded_with

    def write(self, folder: Path, calibration: Calibration, records: Sequence[RunRecord] | None) -> None:
        """Write all of the model into a folder."""
        self._engine.write(folder, calibration, records)


def _run_together(run: Run, taken: Sequence[Turn]) -> None:
    """Run windows; where that fails, those of each request apart, so that a bad one fails alone."""
    try:
        results = run.function([turn.window for turn in taken], *run.options)
    except Exception as error:  # noqa: BLE001 (whatever it is, the next slice must run)
        jobs = {turn.job: None for turn in taken}
        if len(jobs) == 1:
            taken[0].job.request.resume(partial(taken[0].job.future.set_exception, error))
            return
        for job in jobs:
            _run_together(run, [turn for turn in taken if turn.job is job])
    else:
        for turn, result in zip(taken, results, strict=True):
            turn.job.results.append(result)


def _refuse(requests: Iterable[Request]) -> None:
    for request in requests:
        request.give_up(ClosingError())


def give_back_memory() -> None:
    """Hand free pages back to the system, which the allocator keeps after batches of many sizes (glibc).

    Without this, 20,000 requests left a server 218 MB larger; with it 80 MB, of these 14 MB in the second half.
    Elsewhere the allocator has ways of its own.
    """
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
