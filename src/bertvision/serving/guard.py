"""What stands before every request: who may ask, how much at once, and what is noted of it.

The log's lines and the numbers for Prometheus hold no word of the texts.
"""

import asyncio
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TOKENS = (64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0)
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}
UNKNOWN = "(unknown)"  # in the place of a method or path that is not ours: it may hold anything, also a user's text
GONE = 499  # the status, in log and metrics alone, of a request whose client did not wait for its answer
ENDING = "the server is about to end; ask again when it is back"
REFUSALS = {400: "invalid", 401: "token", 404: "unknown", 405: "unknown", 408: "time", 413: "size", 415: "invalid"}
REFUSALS |= {422: "invalid", 429: "busy", GONE: "gone", 503: "ending", 504: "time"}
log = logging.getLogger("bertvision.serve")


class Metrics:
    """All that is counted; of requests only paths that are known, so that no text gets in."""

    def __init__(self, waiting: Callable[[], Mapping[str, tuple[int, int]]]) -> None:
        self._waiting = waiting  # how many requests and tokens wait for each model
        self._registry = registry = CollectorRegistry()  # of its own: a process may hold several servers

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(f"bertvision_{name}", meaning, labels, registry=registry)

        def gauge(name: str, meaning: str, *labels: str) -> Gauge:
            return Gauge(f"bertvision_{name}", meaning, labels, registry=registry)

        def histogram(name: str, meaning: str, label: str, bounds: tuple[float, ...]) -> Histogram:
            return Histogram(f"bertvision_{name}", meaning, (label,), buckets=bounds, registry=registry)

        self._requests = counter("requests_total", "Requests by path and status.", "path", "status")
        self._seconds = histogram("request_seconds", "Time from a request's first byte to its last.", "path", SECONDS)
        self.in_flight = gauge("requests_in_flight", "Requests that are being answered.")
        self._refusals = counter("refusals_total", "Requests that were refused, by reason.", "reason")
        self._queue_length = gauge("queue_length", "Requests that wait for a model.", "model")
        self._queue_tokens = gauge("queue_tokens", "Tokens of these requests that were not run yet.", "model")
        self._runs = counter("model_runs_total", "Runs of a model.", "model")
        self._tokens = histogram("batch_tokens", "Tokens in a run of a model.", "model", TOKENS)
        self._run_seconds = histogram("model_run_seconds", "Time of a run of a model.", "model", SECONDS)
        self.connections = gauge("connections", "Connections that are open.")
        self._dropped = counter("connections_dropped_total", "Connections that were closed, by reason.", "reason")
        ProcessCollector(registry=registry)

    def note_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered or refused."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)
        if status in REFUSALS:
            self._refusals.labels(REFUSALS[status]).inc()

    def note_dropped(self, reason: str) -> None:
        """Count a connection that was closed without an answer."""
        self._dropped.labels(reason).inc()

    def note_run(self, model: str, tokens: int, seconds: float) -> None:
        """Count a run of a model."""
        self._runs.labels(model).inc()
        self._tokens.labels(model).observe(tokens)
        self._run_seconds.labels(model).observe(seconds)

    def text(self) -> str:
        """Write everything down as Prometheus reads it."""
        for model, (requests, tokens) in self._waiting().items():
            self._queue_length.labels(model).set(requests)
            self._queue_tokens.labels(model).set(tokens)
        return generate_latest(self._registry).decode()


class Ending:
    """Whether the server is about to end, and what must not be waited for then."""

    def __init__(self) -> None:
        self.has_begun = False
        self._limits: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def timeout(self, seconds: float) -> AsyncIterator[None]:
        """Raise a TimeoutError after some seconds, or as soon as the server is to end."""
        async with asyncio.timeout(0 if self.has_begun else seconds) as limit:
            self._limits.add(limit)
            try:
                yield
            finally:
                self._limits.discard(limit)

    def begin(self) -> None:
        """Wait for nothing any more."""
        self.has_begun = True
        for limit in self._limits:
            limit.reschedule(0)


class GoneError(Exception):
    """The client did not wait for its answer."""


class Guard:
    """An ASGI layer that lets a request in when its token is right and its body is small enough and comes in time."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        max_body: int,
        timeout: float,
        hosts: Sequence[str],  # names that the server answers to; *: to all
        needs_token: Mapping[str, bool],  # by path, of all that there are
        metrics: Metrics,
        ending: Ending,
    ) -> None:
        self._ending = ending
        self._app, self._token, self._max_body, self._timeout = app, token, max_body, timeout
        self._hosts, self._needs_token, self._metrics = hosts, needs_token, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and write a line about it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status, is_answered = time.perf_counter(), 500, asyncio.Event()
        self._metrics.in_flight.inc()

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # Text that came in goes out as JSON, and no browser may take it for a page.
                MutableHeaders(scope=message)["X-Content-Type-Options"] = "nosniff"
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                is_answered.set()

        try:
            await self._let_in(scope, receive, note, is_answered)
        except GoneError:
            status = GONE
        finally:
            path = scope["path"] if scope["path"] in self._needs_token else UNKNOWN
            method = scope["method"] if scope["method"] in METHODS else UNKNOWN
            seconds = time.perf_counter() - started
            self._metrics.in_flight.dec()
            self._metrics.note_request(path, status, seconds)
            write_log("request", method=method, path=path, status=status, ms=round(1000 * seconds, 1))

    async def _let_in(self, scope: Scope, receive: Receive, send: Send, is_answered: asyncio.Event) -> None:
        try:
            found = await self._body_or_refusal(Request(scope), receive)
        except TimeoutError:
            found = self._late()
        if isinstance(found, Response):
            await found(scope, receive, send)
            return
        try:
            await self._answer(scope, found, receive, send, is_answered)
        except GoneError:
            raise
        except Exception as error:  # noqa: BLE001 (its message may hold a user's text, so that only its kind is logged)
            write_log("error", kind=type(error).__name__)
            await _refusal(500, "something went wrong here; the log says what kind of thing")(scope, receive, send)

    async def _answer(
        self, scope: Scope, body: bytes, receive: Receive, send: Send, is_answered: asyncio.Event
    ) -> None:
        """Let the app answer while the client waits; once it has hung up, stop."""
        hung_up = asyncio.ensure_future(_until_hung_up(receive))
        answer = asyncio.ensure_future(self._app(scope, _replay(body, hung_up), send))
        try:
            await asyncio.wait((answer, hung_up), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done() and not is_answered.is_set():
                raise GoneError
            await answer
        finally:
            hung_up.cancel()
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)

    def _late(self) -> Response:
        close = {"Connection": "close"}
        if self._ending.has_begun:
            return _refusal(503, ENDING, close | {"Retry-After": "1"})
        return _refusal(408, f"the request did not arrive within {self._timeout:g} s", close)

    async def _body_or_refusal(self, request: Request, receive: Receive) -> bytes | Response:
        if not self._is_named(request.headers):
            return _refusal(400, f"the header `Host` names another server; this one is {' or '.join(self._hosts)}")
        # Not `request.url.path`: older versions of starlette build it from the Host header, which a caller chooses.
        asks_for_token = self._token is not None and self._needs_token.get(request.scope["path"], True)
        if asks_for_token and not self._is_known(request.headers):
            headers = {"WWW-Authenticate": "Bearer"}
            return _refusal(401, "give the header `Authorization: Bearer TOKEN`", headers)
        too_large = _refusal(413, f"the request is larger than {self._max_body:,} bytes", {"Connection": "close"})
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._max_body:
            return too_large
        body = b""
        async with self._ending.timeout(self._timeout):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise GoneError
                body += bytes(message.get("body", b""))
                if len(body) > self._max_body:
                    return too_large
                if not message.get("more_body", False):
                    return body

    def _is_named(self, headers: Mapping[str, str]) -> bool:
        """Return whether it is this server that was asked: other sites' names may be made to lead to this machine."""
        given = headers.get("host", "").lower()
        name = f"{given.partition(']')[0]}]" if given.startswith("[") else given.partition(":")[0]
        return "*" in self._hosts or name in self._hosts

    def _is_known(self, headers: Mapping[str, str]) -> bool:
        given = headers.get("authorization", "").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, f"Bearer {self._token}".encode())


def write_log(event: str, **fields: Any) -> None:  # noqa: ANN401 (JSON values)
    """Write one line of JSON."""
    log.info(json.dumps({"event": event, **fields}))


async def _until_hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _replay(body: bytes, hung_up: "asyncio.Future[None]") -> Receive:
    """Return a body that was read already, then that the client has hung up."""
    is_given = False

    async def replay() -> Message:
        nonlocal is_given
        if is_given:
            await asyncio.wait((hung_up,))
            return {"type": "http.disconnect"}
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"detail": message}, status, headers)
