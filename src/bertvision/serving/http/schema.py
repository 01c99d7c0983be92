"""What the server takes and gives, as JSON that means one thing."""

import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any

from fastapi import HTTPException
from fastapi.routing import APIRoute
from pydantic import ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from bertvision.serving.answers import Answer, Classification, Tagging
from bertvision.serving.xray import XrayToken
from bertvision.settings import Config

# The first that is no text is enough: a body of a megabyte may hold 500,000 of them.
ManyTexts = Annotated[list[str], Field(fail_fast=True)]
Texts = str | ManyTexts
QUESTION = "Who built the weir?"
CONTEXT = "The weir was built in 1887 by Hannah Coyle."
MOST_KEYS = 100  # of one object; each that is not known costs time before it can be refused
MOST_PROBLEMS = 3  # that are told of one request
NAMELESS = {"missing": "missing", "extra_forbidden": "unknown"}  # of pydantic's kinds, those of wrong names
LONGEST_NAME = 40  # characters of a caller's own name that an error repeats


def _example(**body: Any) -> ConfigDict:  # noqa: ANN401 (JSON values)
    return ConfigDict(json_schema_extra={"examples": [body]})


class AskedFor(Config):
    """What all requests may have."""

    model: str | None = Field(None, description="The name of a loaded model; without it, the first that fits.")


class AnswerRequest(AskedFor):
    """Questions about one context, or each about its own; one question about several contexts has one answer."""

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
        """Return the characters of the answer that is asked for."""
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


class AnswerResponse(Config):
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


REQUESTS: dict[str, type[Config]] = {
    "/answer": AnswerRequest,
    "/xray": XrayRequest,
    "/classify": ClassifyRequest,
    "/tag": TagRequest,
}


def describe_problems(path: str, problems: Sequence[Any]) -> str:  # (pydantic's own list)
    """Say what is wrong with the fields of a request, without sending its text back."""
    fields = REQUESTS[path].model_fields if path in REQUESTS else {}
    told = "; ".join(map(_describe, problems[:MOST_PROBLEMS]))
    if len(problems) > MOST_PROBLEMS:
        told += f" (and {len(problems) - MOST_PROBLEMS:,} more)"
    if not any(each["type"] in NAMELESS for each in problems):
        return told
    needed = [f"`{name}`" for name, field in fields.items() if field.is_required()]
    others = [f"`{name}`" for name, field in fields.items() if not field.is_required()]
    return f"{told}; {path} takes {' and '.join(needed)}, and may have {', '.join(others)}"


def _describe(problem: Any) -> str:  # noqa: ANN401 (pydantic's)
    place = ".".join(str(name)[:LONGEST_NAME] for name in problem["loc"])
    if problem["type"] in NAMELESS:
        return f"`{place.removeprefix('body.')}` is {NAMELESS[problem['type']]}"
    return f"{place}: {problem['msg']}"


class Refusal(Config):
    """What is wrong with a request."""

    detail: str


class Health(Config):
    """That the server is up."""

    status: str = "ok"


class JsonRequest(Request):
    """A request whose body is read as UTF-8 and may not give a key twice."""

    async def json(self) -> Any:  # noqa: ANN401 (anything that JSON can hold)
        """Return the body's content."""
        return read_body(await self.body())


class JsonRoute(APIRoute):
    """A path whose body, where it takes one, has to be JSON and to say so."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            strict = JsonRequest(request.scope, request.receive)
            # Pages of other sites can send other types, such as forms, without asking first.
            if self.body_field is not None and await strict.body() and not _says_json(strict):
                raise HTTPException(415, "the body has another type; send JSON with `Content-Type: application/json`")
            return await handle(strict)

        return answer


def read_body(body: bytes) -> Any:  # noqa: ANN401 (anything that JSON can hold)
    """Read JSON, without a word of it in the error."""
    try:
        return json.loads(body.decode("utf-8-sig"), object_pairs_hook=_without_twins)
    except UnicodeDecodeError as error:
        raise _unread(f"is not UTF-8 (byte {error.start}); encode the text as UTF-8") from None
    except json.JSONDecodeError as error:
        raise _unread(f"is no JSON (character {error.pos}: {error.msg}); write it with a JSON library") from None
    except RecursionError:
        raise _unread("is nested too deeply; send texts or lists of texts") from None
    except ValueError:  # of Python's limit on digits
        raise _unread("has a number of too many digits; send a shorter one") from None


def _without_twins(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MOST_KEYS:
        raise _unread(f"has {len(pairs):,} keys side by side; send those that the request takes")
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _unread(f"has the key {key[:LONGEST_NAME]!r} twice; give it once")
        found[key] = value
    return found


def _says_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _unread(problem: str) -> HTTPException:
    return HTTPException(400, f"the body {problem}")
