"""HTTP around loaded models, and the web page; every error is JSON with a `detail`."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from importlib.resources import files
from typing import Any, TypeVar

import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bertvision.errors import DataError, SettingsError
from bertvision.serving.classifier import Classifier
from bertvision.serving.http import queue
from bertvision.serving.http.config import ServeConfig
from bertvision.serving.http.guard import AGAIN, CLOSE, CONTENT_TYPE, ENDING, Connection, Guard, Metrics, Shutdown
from bertvision.serving.http.schema import (
    LONGEST_NAME,
    AnswerRequest,
    AnswerResponse,
    Classified,
    ClassifyRequest,
    Health,
    JsonRoute,
    Refusal,
    Tagged,
    TagRequest,
    Xrayed,
    XrayRequest,
    describe_problems,
)
from bertvision.serving.load import Predictor
from bertvision.serving.model import list_texts, pair_up
from bertvision.serving.reader import Asking, Reader, pair_questions
from bertvision.serving.tagger import Tagger
from bertvision.serving.xray import XrayQuestion, xray_answer
from bertvision.version import VERSION

ABOUT = (
    "Every error is JSON with a `detail` that says what is wrong. `start`, `end` and `window` count the characters of "
    "a text as Python does (Unicode code points). JavaScript counts some of them twice, such as emoji; there, "
    "Array.from(text).slice(start, end).join('') is what they mean."
)
VERBS = {Reader: "/answer", Classifier: "/classify", Tagger: "/tag"}
LEAST = 3  # tokens of a window
SHUTDOWN = 5  # seconds for the last answers to be sent
PageFiles = Mapping[str, tuple[bytes, dict[str, str]]]  # by path: a file's content and its headers
TEXT = {"schema": {"type": "string"}}
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # a new version of the package is a new page
}
Result = TypeVar("Result")


class Service:
    """The models that are served, and the queue in which requests wait for them."""

    def __init__(self, models: Mapping[str, Predictor], config: ServeConfig) -> None:
        self._models, self._config = models, config
        self.metrics, self.shutdown = Metrics(self._waiting), Shutdown()
        self._queue = queue.ModelQueue(
            slice_tokens=config.slice_tokens,
            max_tokens=config.max_tokens,
            max_queue=config.max_queue,
            note=self.metrics.note_run,
        )

    @property
    def tasks(self) -> dict[str, str]:
        """Name the models and their tasks."""
        return {name: model.served.config.task for name, model in self._models.items()}

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Run the models while the app is up."""
        async with self._queue.working():
            yield

    def begin_shutdown(self) -> None:
        """Refuse everything but what runs now."""
        self.shutdown.begin()
        self._queue.close()

    def find(self, name: str | None, kind: type[Predictor]) -> tuple[str, Any]:
        """Return the model that is asked for, or the first of a kind."""
        fitting = {each: model for each, model in self._models.items() if isinstance(model, kind)}
        if not fitting or (name is not None and name not in fitting):
            asked = "no model" if name is None else f"no model {name[:LONGEST_NAME]!r}"
            known = ", ".join(f"{each} ({VERBS[type(model)]})" for each, model in self._models.items())
            raise HTTPException(404, f"{asked} for {VERBS[kind]} is loaded; loaded: {known}")
        chosen = next(iter(fitting)) if name is None else name
        return chosen, fitting[chosen]

    def check_size(self, *fields: Any) -> None:  # noqa: ANN401 (texts or lists of them, as a request has them)
        """Refuse what is more work than a request may be, before it is done: one text may be paired with many."""
        rows = max((len(field) for field in fields if isinstance(field, list)), default=1)
        characters = sum(
            len(field) * rows if isinstance(field, str) else sum(map(len, _strings(field))) for field in fields
        )
        if LEAST * rows > self._config.max_tokens or characters > self._config.max_body:
            raise HTTPException(413, f"{rows:,} texts of {characters:,} characters, all pairs counted; send less")

    async def call(self, name: str, model: Any, function: Callable[[Any], Result]) -> Result:  # noqa: ANN401 (a Predictor)
        """Wait for what a function makes of a model that waits its turn, but not for ever."""

        def answer(request: queue.Request) -> Result:
            engine = queue.QueuedEngine(model.served.engine, request)
            return function(replace(model, served=replace(model.served, engine=engine)))

        try:
            async with asyncio.timeout(self._config.timeout):
                return await self._queue.call(name, answer)
        except queue.TooLargeError as error:
            raise HTTPException(
                413,
                f"{error.tokens:,} tokens, in windows that overlap; send at most {self._config.max_tokens:,} in one "
                "request (the server's limit, max_tokens)",
            ) from None
        except queue.BusyError:
            raise HTTPException(429, "too many requests wait; try again later", headers=AGAIN) from None
        except queue.ClosingError:
            raise HTTPException(503, ENDING, headers=CLOSE | AGAIN) from None
        except TimeoutError:
            raise HTTPException(
                504, f"no result within {self._config.timeout:g} s; send less at once (the server's limit, timeout)"
            ) from None

    def _waiting(self) -> tuple[dict[str, int], dict[str, int]]:
        requests, tokens = self._queue.waiting()
        return {name: requests[name] for name in self._models}, {name: tokens[name] for name in self._models}


def build_app(models: Mapping[str, Predictor], config: ServeConfig) -> FastAPI:
    """Build the server of some models by name; none of its pages needs anything from elsewhere."""
    service, page = Service(models, config), read_page()
    app = FastAPI(
        title="bertvision",
        version=VERSION,
        description=ABOUT,
        lifespan=service.lifespan,
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere
        redoc_url=None,
        responses={"4XX": {"model": Refusal, "description": "Refused"}},
    )
    app.state.service = service
    app.router.route_class = JsonRoute
    _add_status(app, service)
    _add_models(app, service)
    _add_page(app, page)
    # Those who watch over a service have no token, and the page asks for one where it is wanted.
    is_open = {"/health", *page}
    app.add_middleware(
        Guard,
        config=config,
        needs_token={path: path not in is_open for path in _paths(app)},
        metrics=service.metrics,
        shutdown=service.shutdown,
    )
    for kind in (RequestValidationError, DataError, SettingsError):
        app.add_exception_handler(kind, _say_what_is_wrong)
    return app


class Server(uvicorn.Server):
    """uvicorn's server, which refuses what waits as soon as it is told to end."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End within seconds."""
        service_of(self.config.app).begin_shutdown()
        await super().shutdown(sockets)


def build_server(app: FastAPI, config: ServeConfig) -> Server:
    """Build what listens for an app; it writes no line of its own about what clients do."""
    # uvicorn's own lines would hold whole addresses, in which users may have written text.
    settings = uvicorn.Config(
        app,
        http=partial(Connection, config.timeout),  # type: ignore[arg-type]  # uvicorn calls it
        ws="none",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN,
    )
    return Server(settings)


def service_of(app: Any) -> Service:  # noqa: ANN401 (what uvicorn calls an app)
    """Return what an app's requests are answered by."""
    service: Service = app.state.service
    return service


def _paths(app: FastAPI) -> Iterator[str]:
    return (route.path for route in app.routes if isinstance(route, Route))


def _add_status(app: FastAPI, service: Service) -> None:
    @app.get("/health")
    async def health() -> Health:
        """Return that the server is up; needs no token."""
        return Health()

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": TEXT}}})
    async def metrics() -> Response:
        """Return what the server did, for Prometheus."""
        return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    @app.get("/models")
    async def models() -> dict[str, str]:
        """Name the loaded models and their tasks."""
        return service.tasks


def _add_models(app: FastAPI, service: Service) -> None:
    @app.post("/answer")
    async def answer(asked: AnswerRequest) -> AnswerResponse:
        """Answer questions about contexts."""
        name, reader = service.find(asked.model, Reader)
        service.check_size(asked.question, asked.context)
        pairs, _ = pair_questions(asked.question, asked.context)
        how = Asking(asked.top_k, asked.null_threshold, asked.max_answer_length, asked.layers)
        fitted = reader.served.calibration
        threshold = fitted.threshold if asked.null_threshold is None else asked.null_threshold
        return AnswerResponse(
            model=name,
            answers=await service.call(name, reader, lambda reader: reader.answer_pairs(pairs, how)),
            null_threshold=threshold if reader.has_null else None,
            fitted_threshold=fitted.threshold,
            temperature=fitted.temperature,
        )

    @app.post("/xray")
    async def xray(asked: XrayRequest) -> Xrayed:
        """Show what each layer adds to the logits of every token around an answer."""
        name, reader = service.find(asked.model, Reader)
        (pair,), _ = pair_up([asked.question], [asked.context])
        question = XrayQuestion(*pair, asked.answer)
        found = await service.call(name, reader, lambda reader: xray_answer(reader, question))
        return Xrayed(model=name, **found.as_dict() | {"tokens": list(found.tokens)})

    @app.post("/classify")
    async def classify(asked: ClassifyRequest) -> Classified:
        """Classify texts."""
        name, model = service.find(asked.model, Classifier)
        service.check_size(asked.text, asked.other)
        rows, _ = model.rows(asked.text, asked.other)
        return Classified(model=name, results=await service.call(name, model, lambda model: model.classify(rows)))

    @app.post("/tag")
    async def tag(asked: TagRequest) -> Tagged:
        """Tag the words of texts."""
        name, model = service.find(asked.model, Tagger)
        service.check_size(asked.text)
        texts, _ = list_texts("text", asked.text)
        return Tagged(model=name, results=await service.call(name, model, lambda model: model.tag(texts)))


def _add_page(app: FastAPI, page: PageFiles) -> None:
    for path, (content, headers) in page.items():
        app.add_route(path, _giving(content, headers), include_in_schema=False)


def _giving(content: bytes, headers: Mapping[str, str]) -> Callable[[Request], Awaitable[Response]]:
    async def give(request: Request) -> Response:
        return Response(content, headers=headers)

    return give


async def _say_what_is_wrong(request: Request, error: Exception) -> JSONResponse:
    """Answer which field is wrong, without sending the text back."""
    if isinstance(error, RequestValidationError):
        return JSONResponse({"detail": describe_problems(request.scope["path"], error.errors())}, 422)
    return JSONResponse({"detail": str(error)}, 422)


def _strings(value: Any) -> Iterator[str]:  # noqa: ANN401 (what a request may hold)
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)


def read_page() -> PageFiles:
    """Return the page's files by path, each with its headers."""
    found = {file.name: file.read_bytes() for file in files("bertvision.serving.http").joinpath("page").iterdir()}
    return {
        "/" if name == "index.html" else f"/{name}": (
            content,
            HEADERS | {"Content-Type": TYPES[name.rpartition(".")[2]]},
        )
        for name, content in found.items()
    }
