"""Just enough HTTP to put a server of this machine under load: connections that are used again and again."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from bertvision.errors import DataError


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int


class Reply(NamedTuple):
    """What a server sent back, and how long it took from the first byte of the request."""

    status: int
    headers: dict[str, str]  # names in small letters
    body: bytes
    seconds: float


class Connection:
    """One connection; a request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, path: str, body: bytes | None = None) -> Reply:
        """POST some JSON, or GET where there is none."""
        started = time.perf_counter()
        try:
            self._writer.write(_request(path, body))
            await self._writer.drain()
            status, headers = _read_head(await self._reader.readuntil(b"\r\n\r\n"))
            content = await self._reader.readexactly(int(headers["content-length"]))
        except (OSError, EOFError) as error:
            raise DataError(
                f"{path}: the server hung up before it had answered ({type(error).__name__}); see whether it still "
                "runs, and report this"
            ) from None
        return Reply(status, headers, content, time.perf_counter() - started)


@asynccontextmanager
async def connected(address: Address) -> AsyncIterator[Connection]:
    """Open a connection, and close it at the end."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()


def _request(path: str, body: bytes | None) -> bytes:
    head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    if body is None:
        return f"{head}\r\n".encode("ascii")
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode("ascii") + body


def _read_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    fields = (line.partition(":") for line in lines)
    return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in fields}
