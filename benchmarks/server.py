"""`bertvision serve` in a process of its own, which ends with the work that it was started for."""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from benchmarks.connection import Address, connected
from bertvision.errors import SettingsError

ADDRESS = re.compile(r"the page is at http://([\d.]+):(\d+)/")


@dataclass(frozen=True)
class Server:
    """A server that runs."""

    address: Address
    process: Process

    async def metrics(self) -> dict[str, float]:
        """Give what the server measured, each number by its name with its labels."""
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
