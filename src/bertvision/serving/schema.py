"""What the server takes and gives, as JSON."""

from pydantic import Field

from bertvision.serving.answer import Answer, Classification, Tagging
from bertvision.settings import Config

Texts = str | list[str]


class ServeConfig(Config):
    """How much a server takes on."""

    max_body: int = Field(1_000_000, ge=1)  # bytes of a request
    max_context: int = Field(100_000, ge=1)  # characters of a text
    max_batch: int = Field(32, ge=1)  # questions or texts in a request
    max_together: int = Field(64, ge=1)  # questions or texts, of several requests, that are run together
    max_queue: int = Field(64, ge=1)  # requests that may wait for a model
    max_wait: float = Field(0.005, ge=0)  # seconds that a request waits for company
    timeout: float = Field(30.0, gt=0)  # seconds until a request is given up
    token: str | None = Field(None, min_length=1)
    hosts: tuple[str, ...] = ("*",)  # names that the server answers to


class AskedFor(Config):
    """What all requests may have."""

    model: str | None = Field(None, description="The name of a loaded model; without it, the first that fits.")


class AnswerRequest(AskedFor):
    """Questions about contexts: pair by pair, or one of either for all of the other."""

    question: Texts
    context: Texts
    top_k: int = Field(1, ge=1, le=1000)
    null_threshold: float | None = Field(None, description="Decline where the null odds exceed it.")
    max_answer_length: int | None = Field(None, ge=1, le=1000, description="In tokens.")
    layers: bool = Field(False, description="Tell what each layer adds to the scores.")


class ClassifyRequest(AskedFor):
    """Texts, or pairs of them; for choices a text with a list of endings."""

    text: Texts
    other: Texts | list[list[str]] | None = None


class TagRequest(AskedFor):
    """Texts whose words get tags."""

    text: Texts


class Answered(Config):
    """A list of answers for each question, the one that is given first."""

    model: str
    answers: list[list[Answer]]


class Classified(Config):
    """What the model says of each text."""

    model: str
    results: list[Classification]


class Tagged(Config):
    """The words and entities of each text."""

    model: str
    results: list[Tagging]


class Health(Config):
    """That the server is up."""

    status: str = "ok"
