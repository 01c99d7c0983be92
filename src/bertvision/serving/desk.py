"""Where requests wait for their model: which one, how much they may be, and what is said where they are refused."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from fastapi import FastAPI, HTTPException

from bertvision.serving.batcher import Batcher, BusyError, ClosingError, TooLargeError
from bertvision.serving.classifier import Classifier
from bertvision.serving.guard import ENDING, Ending, Metrics
from bertvision.serving.predictor import Predictor
from bertvision.serving.reader import Reader
from bertvision.serving.schema import LONGEST_NAME, ServeConfig
from bertvision.serving.served import Steps
from bertvision.serving.tagger import Tagger

VERBS = {Reader: "/answer", Classifier: "/classify", Tagger: "/tag"}
Result = TypeVar("Result")


class Desk:
    """The models that are served, each with the requests that wait for it."""

    def __init__(self, models: Mapping[str, Predictor], config: ServeConfig) -> None:
        self._models, self._config = models, config
        self.metrics, self.ending = Metrics(self._waiting), Ending()
        self._batchers = {name: self._batcher(name) for name in models}

    @property
    def tasks(self) -> dict[str, str]:
        """Name the models and their tasks."""
        return {name: model.served.config.task for name, model in self._models.items()}

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Run all models in one thread, one slice after another."""
        with ThreadPoolExecutor(1) as executor:
            async with AsyncExitStack() as stack:
                for batcher in self._batchers.values():
                    await stack.enter_async_context(batcher.working(executor))
                yield

    def stop(self) -> None:
        """Refuse everything but what runs now."""
        self.ending.begin()
        for batcher in self._batchers.values():
            batcher.stop()

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

    def check_count(self, count: int) -> None:
        """Refuse more questions or texts than the limit."""
        if count > self._config.max_batch:
            raise HTTPException(413, f"{count} texts in one request; send at most {self._config.max_batch}")

    async def run(self, name: str, client: str, steps: Steps[Result]) -> Result:
        """Wait for what a request ends with, but not for ever."""
        try:
            async with asyncio.timeout(self._config.timeout):
                found: Result = await self._batchers[name].submit(client, steps)
                return found
        except TooLargeError as error:
            raise HTTPException(
                413,
                f"{error.tokens:,} tokens, in windows that overlap and are read twice where layers are asked for; send "
                f"at most {self._config.max_tokens:,} in one request (serve --max-tokens)",
            ) from None
        except BusyError as error:
            headers = {"Retry-After": str(error.retry_after)}
            raise HTTPException(429, "too many requests wait; try again later", headers=headers) from None
        except ClosingError:
            raise HTTPException(503, ENDING, headers={"Retry-After": "1", "Connection": "close"}) from None
        except TimeoutError:
            raise HTTPException(
                504, f"no result within {self._config.timeout:g} s; send less at once (or serve --timeout)"
            ) from None

    def _batcher(self, name: str) -> Batcher:
        config = self._config
        return Batcher(
            slice_tokens=config.slice_tokens,
            max_tokens=config.max_tokens,
            max_queue=config.max_queue,
            max_wait=config.max_wait,
            note=partial(self.metrics.note_run, name),
        )

    def _waiting(self) -> dict[str, tuple[int, int]]:
        return {name: (batcher.num_waiting, batcher.tokens_waiting) for name, batcher in self._batchers.items()}


def _strings(value: Any) -> Iterator[str]:  # noqa: ANN401 (what a request may hold)
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
