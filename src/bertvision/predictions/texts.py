"""A grid and its contexts -> which tokens can bound an answer, and what text it has; made once per split."""

import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.predictions.logits import TokenGrid

Characters = npt.NDArray[np.int32]  # places in the text of a `TextGrid`
Bools = npt.NDArray[np.bool_]


class TextGrid(NamedTuple):
    """A grid with the text behind it: what decoding needs beside the logits, the same for every model."""

    tokens: TokenGrid
    text: str  # every context once, each with a line end behind it
    context_at: npt.NDArray[np.int64]  # [question] where its context begins in the text
    can_bound: Bools  # [token] it holds more than blanks
    letter_from: Characters  # [character] the first one from here on that is not blank
    text_until: Characters  # [character] where a text ends that is cut off here: with its marks, without blanks


def text_grid(grid: TokenGrid, contexts: Sequence[str]) -> TextGrid:
    """Join a grid with the context of each of its questions."""
    place_of: dict[str, int] = {}
    length = 0
    for context in contexts:
        if context not in place_of:
            place_of[context] = length
            length += len(context) + 1
    context_at = np.fromiter((place_of[context] for context in contexts), np.int64, len(contexts))
    text = "".join(f"{context}\n" for context in place_of)
    is_blank, is_mark = _tell(text, str.isspace), _tell(text, _is_mark)
    places = np.arange(length, dtype=np.int32)
    letter_from = _next(places, ~is_blank)
    until_letter = np.maximum.accumulate(np.where(is_blank, 0, places + 1))
    # Tokenizers may leave out the marks of a last letter; the line end keeps out those that begin the next context.
    text_until = np.append(np.int32(0), until_letter)[_next(places, ~is_mark)]
    can_bound = _can_bound(grid, context_at, is_blank)
    return TextGrid(grid, text, context_at, can_bound, letter_from, text_until)


def text_bounds(
    grid: TextGrid, questions: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> Characters:
    """Return where the texts of spans begin and end, row by span."""
    at, offsets = grid.context_at[questions], grid.tokens.offsets
    first, stop = grid.letter_from[at + offsets[starts, 0]], grid.text_until[at + offsets[ends, 1]]
    return np.stack([first, stop], axis=1)


def token_bounds(grid: TextGrid) -> tuple[Characters, Characters]:
    """Return where the text of an answer begins that has a token as its first, and ends that has it as its last."""
    of_window = grid.context_at[grid.tokens.question_of]
    at = np.repeat(of_window, np.diff(grid.tokens.window_at))
    starts, ends = np.maximum(grid.tokens.offsets, 0).T  # tokens outside the context bound nothing
    return grid.letter_from[at + starts], grid.text_until[at + ends]


def _tell(text: str, holds: Callable[[str], bool]) -> Bools:
    """Ask something about every letter of a text, of each distinct one once."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    answers = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.bool_)
    for code in np.flatnonzero(np.bincount(codes)).tolist():
        answers[code] = holds(chr(code))
    told: Bools = answers[codes]
    return told


def _is_mark(letter: str) -> bool:
    return unicodedata.category(letter).startswith("M")


def _next(places: Characters, is_wanted: Bools) -> Characters:
    """Return for every place the first from there on that is wanted."""
    found: Characters = np.minimum.accumulate(np.where(is_wanted, places, len(places) - 1)[::-1])[::-1]
    return found


def _can_bound(grid: TokenGrid, context_at: npt.NDArray[np.int64], is_blank: Bools) -> Bools:
    """Return which tokens hold more than blanks: byte-level tokenizers make tokens of line ends, no answers."""
    letters = np.cumsum(~is_blank, dtype=np.int32) - ~is_blank  # before each character
    at = np.repeat(context_at[grid.question_of], np.diff(grid.window_at))
    starts, ends = grid.offsets.T
    can_bound: Bools = letters[at + ends] > letters[at + starts]  # outside the context both are -1
    return can_bound
