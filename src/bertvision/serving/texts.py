"""Anything that a caller may hand over -> texts, or an error that says what is wrong with it."""

from typing import Any

from bertvision.errors import DataError

Pair = tuple[str, str]


def check_text(what: str, value: Any) -> str:  # noqa: ANN401 (checked here)
    """Give a text back if it is one and holds more than blanks."""
    if not isinstance(value, str):
        raise DataError(f"{what}: expected a text, got {type(value).__name__}; give a str")
    if not value.strip():
        raise DataError(f"{what}: is {'blank' if value else 'empty'}; write something there")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"{what}: character {error.start} is U+{ord(value[error.start]):04X}, half of a pair and no letter; "
            "decode the text as UTF-8 again, with errors='replace' if need be"
        ) from None
    return value


def list_texts(what: str, value: Any) -> tuple[list[str], bool]:  # noqa: ANN401 (checked here)
    """Give one text or several as a list, and tell whether it was one."""
    if isinstance(value, list | tuple):
        return [check_text(f"{what} {place}", each) for place, each in enumerate(value)], False
    return [check_text(what, value)], True


def pair_up(first: Any, second: Any, names: Pair = ("question", "context")) -> tuple[list[Pair], bool]:  # noqa: ANN401
    """Pair texts: two lists of one length one by one, one text with every text of a list; tell whether it is one pair.

    Places in error messages count from 0, as in Python.
    """
    firsts, is_one = list_texts(names[0], first)
    seconds, is_other_one = list_texts(names[1], second)
    if is_one and not is_other_one:
        firsts *= len(seconds)
    if is_other_one and not is_one:
        seconds *= len(firsts)
    if len(firsts) != len(seconds):
        raise DataError(
            f"{len(firsts)} {names[0]}s and {len(seconds)} {names[1]}s; give as many of one as of the other, or one "
            f"{names[1]} for all"
        )
    return list(zip(firsts, seconds, strict=True)), is_one and is_other_one
