"""What a server counts, for Prometheus; no word of the texts."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

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
