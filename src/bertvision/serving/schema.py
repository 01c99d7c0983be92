"""What the server takes and gives, as JSON."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from bertvision.serving.answer import Answer, Classification, Tagging
from bertvision.serving.xray import XrayToken
from bertvision.settings import Config

# The first that is no text is enough: a body of a megabyte may hold 500,000 of them.
ManyTexts = Annotated[list[str], Field(fail_fast=True)]
Texts = str | ManyTexts


QUESTION = "Who built the weir?"
CONTEXT = "The weir was built in 1887 by Hannah Coyle."


def _example(**body: Any) -> ConfigDict:  # noqa: ANN401 (JSON values)
    return ConfigDict(json_schema_extra={"examples": [body]})


class ServeConfig(Config):
    """How much a server takes on."""

    max_body: int = Field(1_000_000, ge=1)  # bytes of a request
    max_characters: int = Field(100_000, ge=1)  # of a text
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

    model_config = _example(question=QUESTION, context=CONTEXT, top_k=2)
    question: Texts
    context: Texts
    top_k: int = Field(1, ge=1, le=1000)
    null_threshold: float | None = Field(None, description="Abstain where the null odds exceed it.")
    max_answer_length: int | None = Field(None, ge=1, le=1000, description="In tokens.")
    layers: bool = Field(False, description="Tell what each layer adds to the scores.")


class XrayRequest(AskedFor):
    """A question about a context, and the characters of one of its answers (0 and 0: of "no answer")."""

    model_config = _example(question=QUESTION, context=CONTEXT)
    question: str
    context: str
    start: int | None = Field(None, ge=0, description="Without start and end: of the answer that is given.")
    end: int | None = Field(None, ge=0)

    @model_validator(mode="after")
    def _has_both_or_neither(self) -> "XrayRequest":
        if (self.start is None) != (self.end is None):
            raise ValueError("start and end come together; give both or neither")
        return self

    @property
    def answer(self) -> tuple[int, int] | None:
        """Give the characters of the answer that is asked for."""
        return None if self.start is None or self.end is None else (self.start, self.end)


class ClassifyRequest(AskedFor):
    """Texts, or pairs of them; for choices a text with a list of endings."""

    model_config = _example(text=CONTEXT)
    text: Texts
    other: Texts | Annotated[list[ManyTexts], Field(fail_fast=True)] | None = None


class TagRequest(AskedFor):
    """Texts whose words get tags."""

    model_config = _example(text=CONTEXT)
    text: Texts


class Answered(Config):
    """A list of answers for each question, the one that is given first, and how it was chosen."""

    model: str
    answers: list[list[Answer]]
    # "No answer" is given where its score exceeds the best answer's by more than this; None where it is never given.
    null_threshold: float | None
    # The model's own: "no answer" scores less by it in probabilities. Where both are the same, the likelier is given.
    fitted_threshold: float
    temperature: float  # scores are divided by it before they become probabilities


class Xrayed(Config):
    """One window, token by token: the sum over the parts, such as `layer 3`, is the logit."""

    model: str
    tokens: list[XrayToken]
    first: int  # the answer's first and last token
    last: int
    parts: list[str]
    starts: list[list[float]]  # [token][part]
    ends: list[list[float]]
    start_logits: list[float]
    end_logits: list[float]


class Classified(Config):
    """What the model says of each text."""

    model: str
    results: list[Classification]


class Tagged(Config):
    """The words and entities of each text."""

    model: str
    results: list[Tagging]


class Refusal(Config):
    """What is wrong with a request."""

    detail: str


class Health(Config):
    """That the server is up."""

    status: str = "ok"
