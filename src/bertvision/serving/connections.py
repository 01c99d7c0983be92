"""What uvicorn lacks: a limit on connections, a time within which a request must come, and an end without delay."""

import asyncio
import socket
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from bertvision.serving.desk import Desk
from bertvision.serving.guard import Metrics
from bertvision.serving.schema import ServeConfig

BACKLOG = 128  # connections that the system accepts for us; all of them at once must not use up the open files
SHUTDOWN = 5  # seconds for the last answers to be sent
PARTS = 3  # of a request, each of which has the time-out: it arrives, is answered, is read by the client


class Connections:
    """All open connections; those that no request is answered on are called idle, the longest idle first."""

    def __init__(self, config: ServeConfig, metrics: Metrics) -> None:
        self.config, self.metrics = config, metrics
        self._most = config.max_connections
        self._open: dict[Connection, str] = {}  # the client's address of each
        self._idle: dict[Connection, None] = {}

    def add(self, new: "Connection", address: str) -> None:
        """Let a connection in; over the limit, the longest idle one gives way, of its own address if that has too many.

        Half-sent headers keep nobody out, therefore: whoever sends a request at once is not idle for long.
        """
        self._open[new] = address
        self._idle[new] = None
        if sum(each == address for each in self._open.values()) > self._most // 2:
            self._drop([each for each in self._idle if self._open[each] == address])
        elif len(self._open) > self._most:
            self._drop(list(self._idle))
        self.metrics.connections.set(len(self._open))

    def remove(self, connection: "Connection") -> None:
        """Forget a connection that is closed."""
        self._open.pop(connection, None)
        self._idle.pop(connection, None)
        self.metrics.connections.set(len(self._open))

    def set_idle(self, connection: "Connection", is_idle: bool) -> None:
        """Note whether a request is answered on a connection."""
        self._idle.pop(connection, None)
        if is_idle and connection in self._open:
            self._idle[connection] = None

    def _drop(self, idle: "list[Connection]") -> None:
        self.metrics.note_dropped("limit")
        self.remove(idle[0])  # where all others are busy, the new one
        idle[0].transport.abort()


class Connection(H11Protocol):
    """uvicorn's connection, that ends where no whole request comes in time, however slowly a part of it does."""

    def __init__(self, *args: Any, connections: Connections, **more: Any) -> None:  # noqa: ANN401 (uvicorn's)
        super().__init__(*args, **more)
        self._all = connections
        self._timer: asyncio.TimerHandle | None = None
        self._was_idle = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Count the connection, and give it time to send a request."""
        super().connection_made(transport)
        self._set_timer(self._all.config.header_timeout)
        self._all.add(self, self.client[0] if self.client else "")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._all.remove(self)
        if self._timer is not None:
            self._timer.cancel()

    def handle_events(self) -> None:
        """Read what came, and see whether a request did."""
        super().handle_events()
        self._look()

    def on_response_complete(self) -> None:
        """Wait anew for the next request of the connection."""
        super().on_response_complete()
        self._look(is_new=True)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self._all.metrics.note_dropped("invalid")
        super().send_400_response(msg)

    def _look(self, *, is_new: bool = False) -> None:
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_new or is_idle != self._was_idle:
            config = self._all.config
            self._set_timer(config.header_timeout if is_idle else PARTS * config.timeout)
            self._all.set_idle(self, is_idle)
        self._was_idle = is_idle

    def _set_timer(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        self._all.metrics.note_dropped("time")
        if self._was_idle:
            self.transport.close()  # after an answer that is still on its way
        else:
            self.transport.abort()


class Server(uvicorn.Server):
    """uvicorn's server, which refuses what waits as soon as it is told to end."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End within seconds."""
        desk_of(self.config.app).stop()
        await super().shutdown(sockets)


def build_server(app: FastAPI, config: ServeConfig) -> Server:
    """Build what listens for an app; it writes no line of its own about what clients do."""
    # uvicorn's own lines would hold whole addresses, in which users may have written text.
    settings = uvicorn.Config(
        app,
        http=partial(Connection, connections=Connections(config, desk_of(app).metrics)),  # type: ignore[arg-type]
        ws="none",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=SHUTDOWN,
    )
    return Server(settings)


def desk_of(app: Any) -> Desk:  # noqa: ANN401 (what uvicorn calls an app)
    """Return where an app's requests wait."""
    desk: Desk = app.state.desk
    return desk
