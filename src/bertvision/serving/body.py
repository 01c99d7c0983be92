"""A request's body -> JSON that means one thing, or an error that says what is wrong with it."""

import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fastapi import HTTPException
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

MOST_KEYS = 100  # of one object; each that is not known costs time before it can be refused
LONGEST_NAME = 40  # characters of a caller's own name that an error repeats


class JsonRequest(Request):
    """A request whose body is read as UTF-8 and may not give a key twice."""

    async def json(self) -> Any:  # noqa: ANN401 (anything that JSON can hold)
        """Give the body's content."""
        return read_body(await self.body())


class JsonRoute(APIRoute):
    """A path whose body, where it takes one, has to be JSON and to say so."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Give what answers a request."""
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
