"""What stands before every request: who may ask, how much at once, how long it may take, and what is logged of it.

And what a server counts, for Prometheus; no word of the texts.
"""

import asyncio
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bertvision.serving.http.config import ServeConfig

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TOKENS = (64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0)
GONE = 499  # the status, in log and metrics alone, of a request whose client did not wait for its answer
REFUSALS = {400: "invalid", 401: "token", 404: "unknown", 405: "unknown", 408: "time", 413: "size", 415: "invalid"}
REFUSALS |= {422: "invalid", 429: "busy", GONE: "gone", 503: "ending", 504: "time"}


class Metrics:
    """All that is counted; of requests only paths that are known, so that no text gets in."""

    def __init__(self, waiting: Callable[[], tuple[Mapping[str, int], Mapping[str, int]]]) -> None:
        self._waiting = waiting  # how many requests, and tokens, wait for each model
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
        ProcessCollector(registry=registry)

    def note_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered or refused."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)
        if status in REFUSALS:
            self._refusals.labels(REFUSALS[status]).inc()

    def note_run(self, model: str, tokens: int, seconds: float) -> None:
        """Count a run of a model."""
        self._runs.labels(model).inc()
        self._tokens.labels(model).observe(tokens)
        self._run_seconds.labels(model).observe(seconds)

    def text(self) -> str:
        """Write everything down as Prometheus reads it."""
        for gauge, counts in zip((self._queue_length, self._queue_tokens), self._waiting(), strict=True):
            for model, number in counts.items():
                gauge.labels(model).set(number)
        return generate_latest(self._registry).decode()


METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}
UNKNOWN = "(unknown)"  # in the place of a method or path that is not ours: it may hold anything, also a user's text
READ = 4 * 1024  # bytes at once: with asyncio's 256 kB, forty clients of one-byte chunks kept a GET waiting for 1.5 s
CLOSE = {"Connection": "close"}
AGAIN = {"Retry-After": "1"}
ENDING = "the server is about to end; ask again when it is back"
PHASES = 3  # of a request, each of which has the time-out: it arrives, is answered, is read by the client
MOST_HEAD = 64 * 1024  # bytes of a request's first line and headers, of which httptools itself takes any number
log = logging.getLogger("bertvision.serve")


class Connection(asyncio.BufferedProtocol):
    """uvicorn's protocol of one connection, with what that lacks: an end for requests and clients that never come.

    A request has `timeout` seconds to arrive, from its first byte on, and an answer as many to be read.
    """

    def __init__(self, timeout: float, app_state: Mapping[str, Any], **more: Any) -> None:  # noqa: ANN401 (uvicorn's)
        self._inner = HttpToolsProtocol(app_state={**app_state, "connection": self}, **more)
        self._buffer = bytearray(READ)
        self._timeout = timeout
        self._head = 0  # bytes that came since the last request had arrived
        self._is_head = True  # whether what comes belongs to no request that the guard knows of
        self._is_busy = False  # whether the guard has a request

    def begin(self) -> float:
        """Hand a request whose head has come to the guard; return the seconds that are left for its body."""
        left = self._timer.when() - asyncio.get_running_loop().time()
        self._is_head, self._is_busy = False, True
        self._restart(PHASES * self._timeout)
        return left

    def note_arrival(self) -> None:
        """Note that all of the request is there."""
        self._is_head, self._head = True, 0

    def note_answer(self) -> None:
        """Give the client time to read its answer, and to send the next request."""
        self._is_busy = False
        self._restart(self._timeout)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give a new connection time to send a request."""
        self._transport = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(self._timeout, self._give_up)
        self._inner.connection_made(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._timer.cancel()
        self._inner.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return where the next bytes go."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Read what came, but no head without an end."""
        if self._is_head:
            if self._head > MOST_HEAD:
                self._refuse("431 Request Header Fields Too Large", f"the headers are larger than {MOST_HEAD:,} bytes")
                return
            if self._head == 0 and not self._is_busy:
                self._restart(self._timeout)
            self._head += nbytes
        self._inner.data_received(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> None:
        """Read the end of what the client sends."""
        self._inner.eof_received()

    def pause_writing(self) -> None:
        """Wait until the client has read what was sent."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Send on."""
        self._inner.resume_writing()

    def _restart(self, seconds: float) -> None:
        self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        if self._head:
            self._refuse("408 Request Timeout", f"the request did not arrive within {self._timeout:g} s")
        else:
            self._end()

    def _refuse(self, status: str, detail: str) -> None:
        """Refuse a head; in the middle of an answer, or if the client reads none, only hang up."""
        if not self._is_busy and not self._transport.get_write_buffer_size():
            body = json.dumps({"detail": detail})
            head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            self._transport.write(f"{head}Connection: close\r\n\r\n{body}".encode("ascii"))
        self._end()

    def _end(self) -> None:
        if self._is_busy or self._transport.get_write_buffer_size():
            self._transport.abort()  # to close it would wait for a client that does not read
        else:
            self._transport.close()


class Shutdown:
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
        config: ServeConfig,
        needs_token: Mapping[str, bool],  # by path, of all that there are
        metrics: Metrics,
        shutdown: Shutdown,
    ) -> None:
        self._app, self._config, self._needs_token = app, config, needs_token
        self._metrics, self._shutdown = metrics, shutdown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and write a line about it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status, is_answered = time.perf_counter(), 500, asyncio.Event()
        connection: Connection | None = scope.get("state", {}).get("connection")  # None under another server
        seconds = self._config.timeout if connection is None else connection.begin()
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
            found = await self._body_or_refusal(Request(scope), receive, seconds)
            if connection is not None:
                connection.note_arrival()
            if isinstance(found, Response):
                await found(scope, receive, note)
            else:
                await self._answer(scope, found, receive, note, is_answered)
        except GoneError:
            status = GONE
        finally:
            if connection is not None:
                connection.note_answer()
            path = scope["path"] if scope["path"] in self._needs_token else UNKNOWN
            method = scope["method"] if scope["method"] in METHODS else UNKNOWN
            seconds = time.perf_counter() - started
            self._metrics.in_flight.dec()
            self._metrics.note_request(path, status, seconds)
            write_log("request", method=method, path=path, status=status, ms=round(1000 * seconds, 1))

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
        except GoneError:
            raise
        except Exception as error:  # noqa: BLE001 (its message may hold a user's text, so that only its kind is logged)
            write_log("error", kind=type(error).__name__)
            await _refusal(500, "something went wrong here; the log says what kind of thing")(scope, receive, send)
        finally:
            hung_up.cancel()
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)

    async def _body_or_refusal(self, request: Request, receive: Receive, seconds: float) -> bytes | Response:
        config = self._config
        # starlette's TrustedHostMiddleware refuses in plain text, and older ones of it know no IPv6.
        if not self._is_named(request.headers):
            return _refusal(400, f"the header `Host` names another server; this one is {' or '.join(config.hosts)}")
        # Not `request.url.path`: older versions of starlette build it from the Host header, which a caller chooses.
        asks_for_token = config.token is not None and self._needs_token.get(request.scope["path"], True)
        if asks_for_token and not self._is_known(request.headers):
            return _refusal(401, "give the header `Authorization: Bearer TOKEN`", {"WWW-Authenticate": "Bearer"})
        too_large = _refusal(413, f"the request is larger than {config.max_body:,} bytes", CLOSE)
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > config.max_body:
            return too_large
        parts, size = [], 0
        try:
            async with self._shutdown.timeout(seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise GoneError
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > config.max_body:
                        return too_large
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            if self._shutdown.has_begun:
                return _refusal(503, ENDING, CLOSE | AGAIN)
            return _refusal(408, f"the request did not arrive within {config.timeout:g} s", CLOSE)

    def _is_named(self, headers: Mapping[str, str]) -> bool:
        """Return whether it is this server that was asked: other sites' names may be made to lead to this machine."""
        given = headers.get("host", "").lower()
        name = f"{given.partition(']')[0]}]" if given.startswith("[") else given.partition(":")[0]
        return "*" in self._config.hosts or name in self._config.hosts

    def _is_known(self, headers: Mapping[str, str]) -> bool:
        given = headers.get("authorization", "").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, f"Bearer {self._config.token}".encode())


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
