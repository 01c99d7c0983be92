"""HTTP around loaded models: checks, batches, limits; every error is JSON with a `detail`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, HTTPException
from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bertvision.errors import DataError, SettingsError
from bertvision.serving.batcher import Batcher, BusyError, Run
from bertvision.serving.body import LONGEST_NAME, JsonRoute
from bertvision.serving.classifier import Classifier
from bertvision.serving.guard import Guard
from bertvision.serving.memory import giving_back
from bertvision.serving.metrics import CONTENT_TYPE, Metrics
from bertvision.serving.predictor import Predictor
from bertvision.serving.reader import Asking, Reader
from bertvision.serving.schema import (
    Answered,
    AnswerRequest,
    Classified,
    ClassifyRequest,
    Health,
    Refusal,
    ServeConfig,
    Tagged,
    TagRequest,
    Xrayed,
    XrayRequest,
)
from bertvision.serving.static import read_page
from bertvision.serving.tagger import Tagger
from bertvision.serving.texts import list_texts, pair_up
from bertvision.serving.xray import Asked, xray_all
from bertvision.version import VERSION

ABOUT = (
    "Every error is JSON with a `detail` that says what is wrong. `start`, `end` and `window` count the characters of "
    "a text as Python does (Unicode code points). JavaScript counts some of them twice, such as emoji; there, "
    "Array.from(text).slice(start, end).join('') is what they mean."
)
TEXT = {"schema": {"type": "string"}}
VERBS = {Reader: "/answer", Classifier: "/classify", Tagger: "/tag"}
RETRY_AFTER = "1"  # seconds
MOST_PROBLEMS = 3  # that are told of one request
XRAY = "xray"  # how a reader is run for it
# Those who watch over a service have no token, and the page asks for one where it is wanted.
OPEN = ("/health", *read_page())


def build_app(models: Mapping[str, Predictor], config: ServeConfig) -> FastAPI:
    """Build the server of some models by name; none of its pages needs anything from elsewhere."""
    desk = Desk(models, config)
    app = FastAPI(
        title="bertvision",
        version=VERSION,
        description=ABOUT,
        lifespan=desk.lifespan,
        docs_url=None,  # FastAPI's own page loads its scripts from elsewhere; ours is one of the page's files
        redoc_url=None,
        responses={"4XX": {"model": Refusal, "description": "Refused"}},
    )
    app.router.route_class = JsonRoute
    _add_routes(app, desk)
    _add_page(app)
    app.add_middleware(
        Guard,
        token=config.token,
        max_body=config.max_body,
        timeout=config.timeout,
        hosts=config.hosts,
        needs_token={path: path not in OPEN for path in _paths(app)},
        metrics=desk.metrics,
    )
    for kind in (RequestValidationError, DataError, SettingsError):
        app.add_exception_handler(kind, _say_what_is_wrong)
    return app


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
        """Give the model that is asked for, or the first of a kind."""
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


def _paths(app: FastAPI) -> Iterator[str]:
    return (route.path for route in app.routes if isinstance(route, Route))


def _run_of(model: Predictor) -> Run:
    match model:
        case Reader():
            return lambda how, items: xray_all(model, items) if how == XRAY else model.answer_pairs(items, how)
        case Classifier():
            return lambda how, items: model.classify(items)
        case Tagger():
            return lambda how, items: model(items)


def _add_routes(app: FastAPI, desk: Desk) -> None:
    @app.get("/health")
    async def health() -> Health:
        """Return that the server is up; needs no token."""
        return Health()

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": TEXT}}})
    async def metrics() -> Response:
        """Return what the server did, for Prometheus."""
        return Response(desk.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    @app.get("/models")
    async def models() -> dict[str, str]:
        """Name the loaded models and their tasks."""
        return desk.tasks

    @app.post("/answer")
    async def answer(asked: AnswerRequest) -> Answered:
        """Answer questions about contexts."""
        name, reader = desk.find(asked.model, Reader)
        desk.check_lengths([asked.question, asked.context])
        pairs, _ = pair_up(asked.question, asked.context)
        how = Asking(asked.top_k, asked.null_threshold, asked.max_answer_length, asked.layers)
        fitted = reader.served.calibration
        threshold = fitted.threshold if asked.null_threshold is None else asked.null_threshold
        return Answered(
            model=name,
            answers=await desk.run(name, how, pairs),
            null_threshold=threshold if reader.has_null else None,
            fitted_threshold=fitted.threshold,
            temperature=fitted.temperature,
        )

    @app.post("/xray")
    async def xray(asked: XrayRequest) -> Xrayed:
        """Show what each layer adds to the logits of every token around an answer."""
        name, _ = desk.find(asked.model, Reader)
        desk.check_lengths([asked.question, asked.context])
        (pair,), _ = pair_up([asked.question], [asked.context])
        (found,) = await desk.run(name, XRAY, [Asked(*pair, asked.answer)])
        return Xrayed(model=name, **found.as_dict() | {"tokens": list(found.tokens)})

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


def _add_page(app: FastAPI) -> None:
    for path, (content, headers) in read_page().items():
        app.add_route(path, _giving(content, headers), include_in_schema=False)


def _giving(content: bytes, headers: Mapping[str, str]) -> Callable[[Request], Awaitable[Response]]:
    async def give(request: Request) -> Response:
        return Response(content, headers=headers)

    return give


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
    problems = [f"{_place(each['loc'])}: {each['msg']}" for each in error.errors()[:MOST_PROBLEMS]]
    more = len(error.errors()) - len(problems)
    return JSONResponse({"detail": "; ".join(problems) + (f" (and {more:,} more)" if more else "")}, 422)


def _place(names: Sequence[str | int]) -> str:
    return ".".join(str(name)[:LONGEST_NAME] for name in names)
