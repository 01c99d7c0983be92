"""Requests that come at about the same time -> one run of the model that they ask for."""

import asyncio
import ctypes
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, groupby
from typing import Any

from fastapi import FastAPI, HTTPException

from bertvision.errors import BertVisionError
from bertvision.serving.classifier import Classifier
from bertvision.serving.guard import Metrics
from bertvision.serving.predictor import Predictor
from bertvision.serving.reader import Reader
from bertvision.serving.schema import LONGEST_NAME, ServeConfig
from bertvision.serving.tagger import Tagger
from bertvision.serving.xray import xray_all

Run = Callable[[Any, list[Any]], list[Any]]  # (how, items) -> a result for each item
Note = Callable[[int, float], None]  # told of every run: items, seconds
EVERY = 50  # runs until memory goes back: some milliseconds of work, about twice a minute on a busy CPU
VERBS = {Reader: "/answer", Classifier: "/classify", Tagger: "/tag"}
RETRY_AFTER = "1"  # seconds
XRAY = "xray"  # how a reader is run for it


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
        """Return a result for each item; refuse where too many requests wait."""
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


def give_back_memory() -> None:
    """Hand free pages back (glibc); elsewhere the allocator has ways of its own."""
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def giving_back(run: Run) -> Run:
    """Wrap what runs a model: every so many runs, what the allocator keeps after batches of many sizes goes back.

    Without this, 20,000 requests left a server 218 MB larger; with it 80 MB, of these 14 MB in the second half
    (docs/benchmarks.md, serve).
    """
    numbers = count(1)

    def run_and_give_back(how: Any, items: list[Any]) -> list[Any]:  # noqa: ANN401 (what `Run` takes)
        results = run(how, items)
        if next(numbers) % EVERY == 0:
            give_back_memory()
        return results

    return run_and_give_back


class Desk:
    """Where requests wait for their model."""

    def __init__(self, models: Mapping[str, Predictor], config: ServeConfig) -> None:
        self._models, self._config = models, config
        self.metrics = Metrics(self._waiting)
        self._batchers = {name: self._batcher(name, model) for name, model in models.items()}

    @property
    def tasks(self) -> dict[str, str]:
        """Name the models and their tasks."""
        return {name: model.served.config.task for name, model in self._models.items()}

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Run all models in one thread, one batch after another; at the end, finish what was accepted."""
        with ThreadPoolExecutor(1) as executor:
            async with AsyncExitStack() as stack:
                for batcher in self._batchers.values():
                    await stack.enter_async_context(batcher.working(executor))
                yield

    def find(self, name: str | None, kind: type[Predictor]) -> tuple[str, Any]:
        """Return the model that is asked for, or the first of a kind."""
        fitting = {each: model for each, model in self._models.items() if isinstance(model, kind)}
        if not fitting or (name is not None and name not in fitting):
            asked = "no model" if name is None else f"no model {name[:LONGEST_NAME]!r}"
            known = ", ".join(f"{each} ({VERBS[type(model)]})" for each, model in self._models.items())
            raise HTTPException(404, f"{asked} for {VERBS[kind]} is loaded; loaded: {known}")
        chosen = next(iter(fitting)) if name is None else name
        return chosen, fitting[chosen]

    def check_lengths(self, texts: Any) -> None:  # noqa: ANN401 (what a request may hold)
        """Refuse texts that are longer than the limit."""
        longest = max(map(len, _strings(texts)), default=0)
        if longest > (most := self._config.max_characters):
            raise HTTPException(
                413, f"a text of {longest:,} characters; send at most {most:,} (serve --max-characters)"
            )

    async def run(self, name: str, how: Hashable, items: Sequence[Any]) -> list[Any]:
        """Wait for a model's results, but not for ever."""
        if not items:
            return []
        if len(items) > self._config.max_batch:
            raise HTTPException(413, f"{len(items)} texts in one request; send at most {self._config.max_batch}")
        try:
            async with asyncio.timeout(self._config.timeout):
                return await self._batchers[name].submit(how, items)
        except BusyError:
            raise HTTPException(
                429, "too many requests wait; try again later", headers={"Retry-After": RETRY_AFTER}
            ) from None
        except TimeoutError:
            raise HTTPException(504, f"no result within {self._config.timeout:g} s; send less at once") from None

    def _waiting(self) -> dict[str, int]:
        return {name: batcher.num_waiting for name, batcher in self._batchers.items()}

    def _batcher(self, name: str, model: Predictor) -> Batcher:
        config = self._config
        return Batcher(
            giving_back(_run_of(model)),
            max_items=config.max_together,
            max_wait=config.max_wait,
            max_queue=config.max_queue,
            note=partial(self.metrics.note_run, name),
        )


def _run_of(model: Predictor) -> Run:
    match model:
        case Reader():
            return lambda how, items: xray_all(model, items) if how == XRAY else model.answer_pairs(items, how)
        case Classifier():
            return lambda how, items: model.classify(items)
        case Tagger():
            return lambda how, items: model(items)


def _strings(value: Any) -> Iterator[str]:  # noqa: ANN401 (what a request may hold)
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
