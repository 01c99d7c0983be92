"""HTTP around loaded models: checks, batches, limits; every error is JSON with a `detail`."""

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException
from fastapi.exceptions import RequestValidationError
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse

from bertvision.errors import DataError, SettingsError
from bertvision.serving.batcher import Batcher, BusyError, Run
from bertvision.serving.classifier import Classifier
from bertvision.serving.guard import Guard
from bertvision.serving.predictor import Predictor
from bertvision.serving.reader import Asking, Reader
from bertvision.serving.schema import (
    Answered,
    AnswerRequest,
    Classified,
    ClassifyRequest,
    Health,
    ServeConfig,
    Tagged,
    TagRequest,
)
from bertvision.serving.tagger import Tagger
from bertvision.serving.texts import list_texts, pair_up
from bertvision.version import VERSION

VERBS = {Reader: "/answer", Classifier: "/classify", Tagger: "/tag"}
RETRY_AFTER = "1"  # seconds


def build_app(models: Mapping[str, Predictor], config: ServeConfig) -> FastAPI:
    """Build the server of some models by name; none of its pages needs anything from elsewhere."""
    desk = Desk(models, config)
    app = FastAPI(title="bertvision", version=VERSION, lifespan=desk.lifespan, docs_url=None, redoc_url=None)
    _add_routes(app, desk)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(config.hosts), www_redirect=False)
    paths = frozenset([*VERBS.values(), "/health", "/models", "/openapi.json"])
    app.add_middleware(Guard, token=config.token, max_body=config.max_body, timeout=config.timeout, paths=paths)
    for kind in (RequestValidationError, DataError, SettingsError):
        app.add_exception_handler(kind, _say_what_is_wrong)
    return app


class Desk:
    """Where requests wait for their model."""

    def __init__(self, models: Mapping[str, Predictor], config: ServeConfig) -> None:
        self._models, self._config = models, config
        self._batchers = {name: self._batcher(model) for name, model in models.items()}

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
        """Give the model that is asked for, or the first of a kind."""
        fitting = {each: model for each, model in self._models.items() if isinstance(model, kind)}
        if not fitting or (name is not None and name not in fitting):
            asked = "no model" if name is None else f"no model {name!r}"
            known = ", ".join(f"{each} ({VERBS[type(model)]})" for each, model in self._models.items())
            raise HTTPException(404, f"{asked} for {VERBS[kind]} is loaded; loaded: {known}")
        chosen = next(iter(fitting)) if name is None else name
        return chosen, fitting[chosen]

    def check_lengths(self, texts: Any) -> None:  # noqa: ANN401 (what a request may hold)
        """Refuse texts that are longer than the limit."""
        longest = max(map(len, _strings(texts)), default=0)
        if longest > self._config.max_context:
            raise HTTPException(413, f"a text of {longest:,} characters; send at most {self._config.max_context:,}")

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

    def _batcher(self, model: Predictor) -> Batcher:
        config = self._config
        return Batcher(
            _run_of(model), max_items=config.max_together, max_wait=config.max_wait, max_queue=config.max_queue
        )


def _run_of(model: Predictor) -> Run:
    match model:
        case Reader():
            return lambda how, items: model.answer_pairs(items, how)
        case Classifier():
            return lambda how, items: model.classify(items)
        case Tagger():
            return lambda how, items: model(items)


def _add_routes(app: FastAPI, desk: Desk) -> None:
    @app.get("/health")
    async def health() -> Health:
        """Tell that the server is up."""
        return Health()

    @app.get("/models")
    async def models() -> dict[str, str]:
        """Name the loaded models and their tasks."""
        return desk.tasks

    @app.post("/answer")
    async def answer(asked: AnswerRequest) -> Answered:
        """Answer questions about contexts."""
        name, _ = desk.find(asked.model, Reader)
        desk.check_lengths([asked.question, asked.context])
        pairs, _ = pair_up(asked.question, asked.context)
        how = Asking(asked.top_k, asked.null_threshold, asked.max_answer_length, asked.layers)
        return Answered(model=name, answers=await desk.run(name, how, pairs))

    @app.post("/classify")
    async def classify(asked: ClassifyRequest) -> Classified:
        """Classify texts."""
        name, model = desk.find(asked.model, Classifier)
        desk.check_lengths([asked.text, asked.other])
        rows, _ = model.rows(asked.text, asked.other)
        return Classified(model=name, results=await desk.run(name, None, rows))

    @app.post("/tag")
    async def tag(asked: TagRequest) -> Tagged:
        """Tag the words of texts."""
        name, _ = desk.find(asked.model, Tagger)
        desk.check_lengths([asked.text])
        texts, _ = list_texts("text", asked.text)
        return Tagged(model=name, results=await desk.run(name, None, texts))


def _strings(value: Any) -> Iterator[str]:  # noqa: ANN401 (what a request may hold)
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)


async def _say_what_is_wrong(request: Request, error: Exception) -> JSONResponse:
    """Tell the caller which field is wrong, without sending the text back."""
    if not isinstance(error, RequestValidationError):
        return JSONResponse({"detail": str(error)}, 422)
    problems = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
    return JSONResponse({"detail": "; ".join(problems)}, 422)
