"""What a server did, in the Prometheus text format: numbers by path, status and model, without a word of the texts."""

import bisect
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ITEMS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
REFUSALS = {400: "invalid", 401: "token", 404: "unknown", 405: "unknown", 408: "time", 413: "size", 415: "invalid"}
REFUSALS |= {422: "invalid", 429: "busy", 504: "time"}
STATM = Path("/proc/self/statm")  # Linux alone has it

Labels = tuple[tuple[str, str], ...]
Samples = Mapping[Labels, float]
ALONE: Labels = ()  # of a number that there is one of


class Counter:
    """A number for each set of labels that only grows."""

    def __init__(self) -> None:
        self.values: dict[Labels, float] = {}

    def add(self, amount: float = 1.0, **labels: str) -> None:
        """Add to the number of these labels."""
        key = tuple(labels.items())
        self.values[key] = self.values.get(key, 0.0) + amount


class Histogram:
    """How often a value was at most each of some bounds, for each set of labels."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = (*bounds, math.inf)
        self.counts: dict[Labels, list[int]] = {}
        self.sums: dict[Labels, float] = {}

    def add(self, value: float, **labels: str) -> None:
        """Count a value."""
        key = tuple(labels.items())
        counts = self.counts.setdefault(key, [0] * len(self.bounds))
        counts[bisect.bisect_left(self.bounds, value)] += 1
        self.sums[key] = self.sums.get(key, 0.0) + value


class Metrics:
    """All that is counted; of requests only paths that are known, so that no text gets in."""

    def __init__(self, waiting: Callable[[], Mapping[str, int]]) -> None:
        self._waiting = waiting  # how many requests wait for each model
        self.requests, self.refusals, self.runs = Counter(), Counter(), Counter()
        self.seconds, self.items, self.run_seconds = Histogram(SECONDS), Histogram(ITEMS), Histogram(SECONDS)
        self.in_flight = 0

    def note_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered or refused."""
        self.requests.add(path=path, status=str(status))
        self.seconds.add(seconds, path=path)
        if status in REFUSALS:
            self.refusals.add(reason=REFUSALS[status])

    def note_run(self, model: str, items: int, seconds: float) -> None:
        """Count a run of a model."""
        self.runs.add(model=model)
        self.items.add(items, model=model)
        self.run_seconds.add(seconds, model=model)

    def text(self) -> str:
        """Write everything down as Prometheus reads it."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        waiting: dict[Labels, float] = {(("model", name),): float(count) for name, count in self._waiting().items()}
        yield from _plain("requests_total", "counter", "Requests by path and status.", self.requests.values)
        yield from _histogram("request_seconds", "Time from a request's first byte to its last.", self.seconds)
        yield from _plain("requests_in_flight", "gauge", "Requests that are being answered.", {ALONE: self.in_flight})
        yield from _plain("refusals_total", "counter", "Requests that were refused, by reason.", self.refusals.values)
        yield from _plain("queue_length", "gauge", "Requests that wait for a model.", waiting)
        yield from _plain("model_runs_total", "counter", "Runs of a model.", self.runs.values)
        yield from _histogram("batch_items", "Questions or texts in a run of a model.", self.items)
        yield from _histogram("model_run_seconds", "Time of a run of a model.", self.run_seconds)
        seconds = {ALONE: time.process_time()}
        yield from _plain("process_cpu_seconds_total", "counter", "Time spent computing.", seconds, prefix="")
        if STATM.is_file():
            size = {ALONE: float(_resident_bytes())}
            yield from _plain("process_resident_memory_bytes", "gauge", "Memory in use.", size, prefix="")


def _plain(name: str, kind: str, meaning: str, samples: Samples, prefix: str = "bertvision_") -> Iterator[str]:
    yield from _head(prefix + name, kind, meaning)
    for labels, value in samples.items():
        yield f"{prefix}{name}{_labels(labels)} {value:.17g}"


def _histogram(name: str, meaning: str, histogram: Histogram) -> Iterator[str]:
    name = f"bertvision_{name}"
    yield from _head(name, "histogram", meaning)
    for labels, counts in histogram.counts.items():
        for place, bound in enumerate(histogram.bounds):
            upper = "+Inf" if math.isinf(bound) else f"{bound:g}"
            yield f"{name}_bucket{_labels((*labels, ('le', upper)))} {sum(counts[: place + 1])}"
        yield f"{name}_sum{_labels(labels)} {histogram.sums[labels]:.17g}"
        yield f"{name}_count{_labels(labels)} {sum(counts)}"


def _head(name: str, kind: str, meaning: str) -> Iterator[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels) + "}" if labels else ""


def _escape(value: str) -> str:
    """Write a value so that it ends where it should: models are named by who starts the server."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _resident_bytes() -> int:
    return int(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
