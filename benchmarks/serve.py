"""A server under load: requests a second, memory, a heavy client beside light ones, a burst, its end while it works."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from benchmarks.server import Address, Reply, Server, connected, running
from bertvision.data.example import Question
from bertvision.errors import DataError, SettingsError
from bertvision.evaluate.score import read_questions
from bertvision.model_folder import find_model
from bertvision.progress import SILENT, Bar, Progress
from bertvision.records import BenchRecord, Side, provenance
from bertvision.settings import DEFAULT, Config
from bertvision.training.device import choose_compute

LENGTHS = (150, 300, 450, None)  # characters of a context; None: all of it, about 600
NAME = "model"
EVERY = 4  # of the sample's 240 questions, this one is asked
TOGETHER = 8  # questions of one request, so that the server is still busy when it is told to end
PARTS = ("warm-up", "first quarter", "second quarter", "third quarter", "last quarter")
OK, BUSY, ENDING, LATE = 200, 429, 503, 504


class ServeBench(Config):
    """What the server is put through."""

    model: str = DEFAULT  # or a MODEL_DIR of a reader
    device: str = "auto"
    requests: int = Field(20_000, ge=4)  # of one question each
    clients: int = Field(16, ge=1)  # that ask at once, each again as soon as it has its answer
    max_queue: int = Field(64, ge=1)  # requests that may wait in the server
    burst: int = Field(240, ge=1)  # requests that come at once
    light_clients: int = Field(20, ge=1)  # that ask alone, and beside a heavy one
    light_requests: int = Field(200, ge=1)  # of them all, in a round of either
    heavy_characters: int = Field(90_000, ge=1)  # of the context that the heavy client asks about, again and again
    rounds: int = Field(4, ge=1)  # alone and beside it
    timeout: float = Field(3600.0, gt=0)  # seconds for all of it

    @model_validator(mode="after")
    def _is_under_and_over_the_limit(self) -> "ServeBench":
        if not max(self.clients, self.light_clients + 1) <= self.max_queue < self.burst:
            raise ValueError("clients may be at most max_queue, so that none is refused, and burst must exceed it")
        return self


def bench_serve(config: ServeBench, progress: Progress = SILENT) -> BenchRecord:
    """Put a server under load on this machine; a reply that is not the one due stops it with an error."""
    compute, place = choose_compute(config.device), find_model(Path(config.model))
    try:
        sides, figures = asyncio.run(_measure(config, place, progress))
    except TimeoutError:
        raise SettingsError(
            f"the server had not done its work within {config.timeout:g} s; give fewer requests or a longer timeout"
        ) from None
    except asyncio.CancelledError:  # SIGTERM
        raise KeyboardInterrupt from None
    return BenchRecord(
        name="serve",
        variant=place.name,
        about="requests to a server in a process of its own, over connections that stay open, on one machine",
        settings={**config.model_dump(mode="json"), "model": place.name},  # the folder is this machine's
        sides=sides,
        figures={name: round(value, 3) for name, value in figures.items()},
        provenance=provenance(compute.name, compute.precision),
    )


async def _measure(config: ServeBench, place: Path, progress: Progress) -> tuple[tuple[Side, ...], dict[str, float]]:
    arguments = ("--model", f"{NAME}={place}", "--device", config.device, "--max-queue", str(config.max_queue))
    questions = read_questions("sample:dev").questions[::EVERY]
    many = _body([each.text for each in questions[:TOGETHER]], questions[0].context)
    async with asyncio.timeout(config.timeout), running(arguments) as server:
        work = await _ask_alone(server.address, _bodies(questions))
        burst = await _burst(server.address, work.bodies[-1], config.burst)
        if await _ask_alone(server.address, work.bodies) != work:
            raise DataError("after the burst the server gave other answers than before; please report this")
        parts = await _load(server, work, config, progress)
        light = await _ask_beside(server, work, config, progress)
        end = await _end(server, many, config.clients)
    sides = tuple(Side(name=name, seconds=(part.seconds,)) for name, part in zip(PARTS[1:], parts[1:], strict=True))
    return sides, {**load_figures(parts), **light_figures(light), **burst, **end}


class Work(NamedTuple):
    """Requests that are sent in turns, and what the server answers to each when it is asked nothing else."""

    bodies: list[bytes]
    answers: list[Any]


class Part(NamedTuple):
    """What was measured while a part of the requests was answered."""

    seconds: float
    latencies: list[float]  # seconds of each request
    num_different: int  # answers that are not those given alone
    memory: float | None  # bytes of the server afterwards, where its system tells


async def _ask_alone(address: Address, bodies: list[bytes]) -> Work:
    async with connected(address) as connection:
        return Work(bodies, [_answers(await connection.ask("/answer", body)) for body in bodies])


async def _load(server: Server, work: Work, config: ServeBench, progress: Progress) -> list[Part]:
    """Ask in four quarters, after a warm-up in which the server takes the memory that it needs."""
    counts = [max(config.requests // 20, 1), *[config.requests // 4] * 4]
    with progress.bar("requests", sum(counts)) as bar:
        return [await _ask_together(server, work, config.clients, count, bar) for count in counts]


async def _ask_together(server: Server, work: Work, clients: int, count: int, bar: Bar) -> Part:
    """Let every client take the next request until all are answered."""
    numbers = iter(range(count))
    latencies: list[float] = []
    num_different = 0

    async def ask() -> None:
        nonlocal num_different
        async with connected(server.address) as connection:
            for number in numbers:
                kind = number % len(work.bodies)
                reply = await connection.ask("/answer", work.bodies[kind])
                latencies.append(reply.seconds)
                num_different += _answers(reply) != work.answers[kind]
                bar.advance(1)

    started = time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(clients)))
    seconds = round(time.perf_counter() - started, 6)
    memory = (await server.metrics()).get("process_resident_memory_bytes")
    return Part(seconds, latencies, num_different, memory)


def load_figures(parts: Sequence[Part]) -> dict[str, float]:
    """Sum up a warm-up and the four quarters after it."""
    latencies = 1000 * np.concatenate([part.latencies for part in parts[1:]])
    middle, slow = np.percentile(latencies, (50, 99)).tolist()
    found = {
        "requests a second": len(latencies) / sum(part.seconds for part in parts[1:]),
        "milliseconds, p50": middle,
        "milliseconds, p99": slow,
        "answers that differ from those given alone": float(sum(part.num_different for part in parts)),
    }
    memory = [part.memory / 1e6 for part in parts if part.memory is not None]
    if not memory:
        return found
    found |= {f"memory after the {name}, MB": size for name, size in zip(PARTS, memory, strict=True)}
    return found | {"growth of memory in the second half, MB": memory[4] - memory[2]}


class Light(NamedTuple):
    """Seconds of each request of light clients, and how the requests of the heavy one beside them ended."""

    alone: list[float]
    beside: list[float]
    heavy: list[int]  # statuses


async def _ask_beside(server: Server, work: Work, config: ServeBench, progress: Progress) -> Light:
    """Let light clients ask alone and beside a heavy one, in turns."""
    text = " ".join(each.context for each in read_questions("sample:dev").questions)
    context = (text * (config.heavy_characters // len(text) + 1))[: config.heavy_characters]
    found = Light([], [], [])
    with progress.bar("beside a heavy client", 2 * config.rounds * config.light_requests) as bar:
        for number in range(2 * config.rounds):
            is_beside = number % 4 in (1, 2)  # forwards in one round and backwards in the next
            async with AsyncExitStack() as stack:
                if is_beside:
                    await stack.enter_async_context(_asking_heavily(server, _body("Who?", context), found.heavy))
                part = await _ask_together(server, work, config.light_clients, config.light_requests, bar)
            (found.beside if is_beside else found.alone).extend(part.latencies)
    return found


@asynccontextmanager
async def _asking_heavily(server: Server, body: bytes, statuses: list[int]) -> AsyncIterator[None]:
    """Send a heavy request whenever the one before it has ended; hang up at the end."""

    async def ask() -> None:
        async with connected(server.address) as connection:
            while True:
                reply = await connection.ask("/answer", body)
                statuses.append(reply.status)
                if reply.status not in (OK, LATE):
                    raise DataError(f"the server replied {reply.status} to a heavy request; expected 200 or 504")

    asking = asyncio.create_task(ask())
    try:
        while (await server.metrics())[f'bertvision_queue_tokens{{model="{NAME}"}}'] == 0 and not asking.done():
            pass
        yield
    finally:
        asking.cancel()
        await asyncio.wait((asking,))
    if not asking.cancelled():
        asking.result()


def light_figures(light: Light) -> dict[str, float]:
    """Sum up how long light clients wait, alone and beside a heavy one."""
    (alone, slow_alone), (beside, slow_beside) = (
        (1000 * np.percentile(each, (50, 99))).tolist() for each in (light.alone, light.beside)
    )
    return {
        "light clients alone: milliseconds, p50": alone,
        "light clients alone: milliseconds, p99": slow_alone,
        "light clients beside a heavy one: milliseconds, p50": beside,
        "light clients beside a heavy one: milliseconds, p99": slow_beside,
        "light clients beside a heavy one: p99 as a multiple of p99 alone": slow_beside / slow_alone,
        "heavy requests answered beside them": float(light.heavy.count(OK)),
        "heavy requests given up (504) beside them": float(light.heavy.count(LATE)),
    }


async def _burst(address: Address, body: bytes, count: int) -> dict[str, float]:
    """Send more at once than may wait: some are answered, the others are told when to come back."""
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(connected(address)) for _ in range(count)]
        replies = await asyncio.gather(*(connection.ask("/answer", body) for connection in connections))
    refused = [reply for reply in replies if reply.status == BUSY and reply.headers.get("retry-after", "").isdecimal()]
    answered = [_answers(reply) for reply in replies if reply not in refused]
    if not refused:
        raise SettingsError(f"the server answered {count} requests at once; give a larger burst to see it refuse")
    return {"burst: answered": float(len(answered)), "burst: 429 with Retry-After": float(len(refused))}


async def _end(server: Server, body: bytes, count: int) -> dict[str, float]:
    """Send SIGTERM while requests are answered, and wait for an answer or 503 to each, and for the server's end."""
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(connected(server.address)) for _ in range(count)]
        asking = [asyncio.create_task(connection.ask("/answer", body)) for connection in connections]
        # The one that asks is in flight, too.
        while (await server.metrics())["bertvision_requests_in_flight"] - 1 + sum(map(_is_done, asking)) < count:
            pass
        in_flight = count - sum(map(_is_done, asking))
        started = time.perf_counter()
        server.process.send_signal(signal.SIGTERM)
        replies = await asyncio.gather(*asking)
    code = await server.process.wait()
    refused = [reply for reply in replies if reply.status == ENDING]
    answered = [_answers(reply) for reply in replies if reply not in refused]
    if code not in (0, -signal.SIGTERM):
        raise DataError(f"the server ended with code {code} instead of SIGTERM's; please report this")
    return {
        "SIGTERM: requests in flight": float(in_flight),
        "SIGTERM: requests answered": float(len(answered)),
        "SIGTERM: requests refused with 503": float(len(refused)),
        "SIGTERM: seconds to the end": time.perf_counter() - started,
    }


def _is_done(asking: "asyncio.Task[Reply]") -> bool:
    return asking.done()


def _bodies(questions: Sequence[Question]) -> list[bytes]:
    """Ask each question about as much of its context as its turn is."""
    return [_body(each.text, each.context[: LENGTHS[n % len(LENGTHS)]]) for n, each in enumerate(questions)]


def _body(question: str | list[str], context: str) -> bytes:
    return json.dumps({"question": question, "context": context}).encode()


def _answers(reply: Reply) -> list[tuple[str, int, int]]:
    """Return the answers with their characters; refuse a reply that holds none."""
    if reply.status != OK:
        raise DataError(f"the server replied {reply.status}: {reply.body[:200].decode()}; expected 200")
    return [(best["text"], best["start"], best["end"]) for best, *_ in json.loads(reply.body)["answers"]]
