"""How much a server takes on; imported by the command line, and therefore without pydantic."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ServeConfig:
    """Limits of a server, and who may ask it."""

    max_body: int = 2_000_000  # bytes of a request; 50 pages are about 150,000
    max_tokens: int = 100_000  # of a request, as the model reads them: in windows that overlap
    slice_tokens: int = 2048  # of several requests, that are run together, and not to be interrupted
    max_queue: int = 64  # requests that may wait
    timeout: float = 30.0  # seconds in which a request has to arrive, then to be answered, then to be read
    token: str | None = None
    hosts: tuple[str, ...] = ("*",)  # names that the server answers to; *: to all
