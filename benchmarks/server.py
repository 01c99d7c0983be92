"""`bertvision serve` in a process of its own, and just enough HTTP to put it under load over open connections."""

import asyncio
import os
import re
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from bertvision.errors import DataError, SettingsError

ADDRESS = re.compile(r"the page is at http://([\d.]+):(\d+)/")


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


@dataclass(frozen=True)
class Server:
    """A server that runs."""

    address: Address
    process: Process

    async def metrics(self) -> dict[str, float]:
        """Return what the server measured, each number by its name with its labels."""
        async with connected(self.address) as connection:
            return read_metrics((await connection.ask("/metrics")).body.decode())


@asynccontextmanager
async def running(arguments: Sequence[str]) -> AsyncIterator[Server]:
    """Start a server on a free port of this machine, and see to it that it is gone at the end."""
    # Its own settings alone: a token in the environment would keep us out.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BERTVISION_")}
    command = (sys.executable, "-m", "bertvision", "serve", "--port", "0", *arguments)
    if work := asyncio.current_task():  # SIGTERM would end this process at once, and leave the server alone
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=PIPE, env=environment)
    try:
        address = await _read_address(process)
        reading = asyncio.create_task(_read_on(process))
        yield Server(address, process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    await reading


def read_metrics(text: str) -> dict[str, float]:
    """Read the Prometheus text format."""
    samples = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


async def _read_address(process: Process) -> Address:
    said = ""
    while line := await _line(process):
        said = line
        if found := ADDRESS.search(line):
            return Address(found[1], int(found[2]))
    raise SettingsError(f"`bertvision serve` did not start; it said: {said.strip() or 'nothing'}")


async def _read_on(process: Process) -> None:
    """Read the server's log away: a pipe that is full would stop it."""
    while await _line(process):
        pass


async def _line(process: Process) -> str:
    return (await process.stderr.readline()).decode() if process.stderr else ""


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
