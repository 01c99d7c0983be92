"""HTTP around loaded models, and the web page: checks, limits; every error is JSON with a `detail`."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from importlib.resources import files

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bertvision.errors import DataError, SettingsError
from bertvision.serving.classifier import Classifier
from bertvision.serving.desk import Desk
from bertvision.serving.guard import CONTENT_TYPE, Guard
from bertvision.serving.predictor import Predictor
from bertvision.serving.reader import Asking, Reader
from bertvision.serving.schema import (
    LONGEST_NAME,
    AnswerRequest,
    AnswerResponse,
    Classified,
    ClassifyRequest,
    Health,
    JsonRoute,
    Refusal,
    ServeConfig,
    Tagged,
    TagRequest,
    Xrayed,
    XrayRequest,
)
from bertvision.serving.served import list_texts, pair_up
from bertvision.serving.tagger import Tagger
from bertvision.serving.xray import XrayQuestion, xray_steps
from bertvision.version import VERSION

ABOUT = (
    "Every error is JSON with a `detail` that says what is wrong. `start`, `end` and `window` count the characters of "
    "a text as Python does (Unicode code points). JavaScript counts some of them twice, such as emoji; there, "
    "Array.from(text).slice(start, end).join('') is what they mean."
)
PageFiles = Mapping[str, tuple[bytes, dict[str, str]]]  # by path: a file's content and its headers
TEXT = {"schema": {"type": "string"}}
MOST_PROBLEMS = 3  # that are told of one request
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
PAGES = {"index.html": "/", "docs.html": "/docs"}
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


def build_app(models: Mapping[str, Predictor], config: ServeConfig) -> FastAPI:
    """Build the server of some models by name; none of its pages needs anything from elsewhere."""
    desk, page = Desk(models, config), read_page()
    app = FastAPI(
        title="bertvision",
        version=VERSION,
        description=ABOUT,
        lifespan=desk.lifespan,
        docs_url=None,  # FastAPI's own page loads its scripts from elsewhere; ours is one of the page's files
        redoc_url=None,
        responses={"4XX": {"model": Refusal, "description": "Refused"}},
    )
    app.state.desk = desk
    app.router.route_class = JsonRoute
    _add_status(app, desk)
    _add_models(app, desk)
    _add_page(app, page)
    # Those who watch over a service have no token, and the page asks for one where it is wanted.
    is_open = {"/health", *page}
    app.add_middleware(
        Guard,
        token=config.token,
        max_body=config.max_body,
        timeout=config.timeout,
        hosts=config.hosts,
        needs_token={path: path not in is_open for path in _paths(app)},
        metrics=desk.metrics,
        ending=desk.ending,
    )
    for kind in (RequestValidationError, DataError, SettingsError):
        app.add_exception_handler(kind, _say_what_is_wrong)
    return app


def _paths(app: FastAPI) -> Iterator[str]:
    return (route.path for route in app.routes if isinstance(route, Route))


def _add_status(app: FastAPI, desk: Desk) -> None:
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


def _add_models(app: FastAPI, desk: Desk) -> None:
    @app.post("/answer")
    async def answer(asked: AnswerRequest, request: Request) -> AnswerResponse:
        """Answer questions about contexts."""
        name, reader = desk.find(asked.model, Reader)
        desk.check_lengths([asked.question, asked.context])
        pairs, _ = pair_up(asked.question, asked.context)
        desk.check_count(len(pairs))
        how = Asking(asked.top_k, asked.null_threshold, asked.max_answer_length, asked.layers)
        fitted = reader.served.calibration
        threshold = fitted.threshold if asked.null_threshold is None else asked.null_threshold
        return AnswerResponse(
            model=name,
            answers=await desk.run(name, _client(request), reader.answer_steps(pairs, how)),
            null_threshold=threshold if reader.has_null else None,
            fitted_threshold=fitted.threshold,
            temperature=fitted.temperature,
        )

    @app.post("/xray")
    async def xray(asked: XrayRequest, request: Request) -> Xrayed:
        """Show what each layer adds to the logits of every token around an answer."""
        name, reader = desk.find(asked.model, Reader)
        desk.check_lengths([asked.question, asked.context])
        (pair,), _ = pair_up([asked.question], [asked.context])
        steps = xray_steps(reader, XrayQuestion(*pair, asked.answer))
        found = await desk.run(name, _client(request), steps)
        return Xrayed(model=name, **found.as_dict() | {"tokens": list(found.tokens)})

    @app.post("/classify")
    async def classify(asked: ClassifyRequest, request: Request) -> Classified:
        """Classify texts."""
        name, model = desk.find(asked.model, Classifier)
        desk.check_lengths([asked.text, asked.other])
        rows, _ = model.rows(asked.text, asked.other)
        desk.check_count(len(rows))
        return Classified(model=name, results=await desk.run(name, _client(request), model.classify_steps(rows)))

    @app.post("/tag")
    async def tag(asked: TagRequest, request: Request) -> Tagged:
        """Tag the words of texts."""
        name, model = desk.find(asked.model, Tagger)
        desk.check_lengths([asked.text])
        texts, _ = list_texts("text", asked.text)
        desk.check_count(len(texts))
        return Tagged(model=name, results=await desk.run(name, _client(request), model.tag_steps(texts)))


def _client(request: Request) -> str:
    """Return who asks: an address, or the one that a proxy on this machine tells."""
    return "" if request.client is None else request.client.host


def _add_page(app: FastAPI, page: PageFiles) -> None:
    for path, (content, headers) in page.items():
        app.add_route(path, _giving(content, headers), include_in_schema=False)


def _giving(content: bytes, headers: Mapping[str, str]) -> Callable[[Request], Awaitable[Response]]:
    async def give(request: Request) -> Response:
        return Response(content, headers=headers)

    return give


async def _say_what_is_wrong(request: Request, error: Exception) -> JSONResponse:
    """Answer which field is wrong, without sending the text back."""
    if not isinstance(error, RequestValidationError):
        return JSONResponse({"detail": str(error)}, 422)
    problems = [f"{_place(each['loc'])}: {each['msg']}" for each in error.errors()[:MOST_PROBLEMS]]
    more = len(error.errors()) - len(problems)
    return JSONResponse({"detail": "; ".join(problems) + (f" (and {more:,} more)" if more else "")}, 422)


def _place(names: Sequence[str | int]) -> str:
    return ".".join(str(name)[:LONGEST_NAME] for name in names)


def read_page() -> PageFiles:
    """Return the pages' files by path, each with its headers."""
    found = {file.name: file.read_bytes() for file in files("bertvision.serving").joinpath("page").iterdir()}
    named = {PAGES.get(name, f"/{name}"): (name, content) for name, content in found.items()}
    return {
        path: (content, HEADERS | {"Content-Type": TYPES[name.rpartition(".")[2]]})
        for path, (name, content) in named.items()
    }
