"""One model's start and end logits for a whole split, flat, with what maps every token back to characters.

And a grid with its contexts, made once per split: which tokens can bound an answer, and what text it has.
"""

import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from bertvision.errors import FolderError
from bertvision.files import parse_json, whole_file
from bertvision.manifest import check_manifest

TYPES = {
    "question_of": np.int32,
    "window_at": np.int64,
    "context_at": np.int32,
    "offsets": np.int32,
    "logits": np.float32,
}
Logits = npt.NDArray[np.float32]  # [token, start and end (and the factors of a joint readout)]
Characters = npt.NDArray[np.int32]  # places in the text of a `TextGrid`
Bools = npt.NDArray[np.bool_]


@runtime_checkable
class PlacedTokens(Protocol):
    """What a grid keeps of a window; not the window's own type, which would bring transformers to who reads logits."""

    @property
    def example(self) -> int:
        """Return which question of the split it belongs to."""
        ...

    @property
    def context_at(self) -> int:
        """Return which token is the first of the context."""
        ...

    @property
    def offsets(self) -> npt.NDArray[np.int32]:
        """Return the characters of each token of the context."""
        ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class TokenGrid:
    """All tokens of all windows of a split, window after window; windows of one question are neighbours."""

    question_ids: tuple[str, ...]
    question_of: npt.NDArray[np.int32]  # [window] which question it belongs to
    window_at: npt.NDArray[np.int64]  # [window + 1] where its tokens begin
    context_at: npt.NDArray[np.int32]  # [window] which of its tokens is the first of the context
    offsets: npt.NDArray[np.int32]  # [token, 2] characters in the context; -1, -1 outside it

    @property
    def num_windows(self) -> int:
        """Count the windows."""
        return len(self.question_of)

    def difference(self, other: "TokenGrid") -> str | None:
        """Name what sets two grids apart; None where logits on them can be combined token by token."""
        if self.question_ids != other.question_ids:
            return "their questions differ"
        for name in ("question_of", "window_at", "context_at", "offsets"):
            if not np.array_equal(getattr(self, name), getattr(other, name)):
                return "their windows or tokenizers differ"
        return None


def grid_of(windows: Sequence[PlacedTokens], question_ids: Sequence[str]) -> TokenGrid:
    """Lay windows out flat."""
    lengths = np.fromiter((len(window) for window in windows), dtype=np.int64, count=len(windows))
    window_at = np.concatenate([[0], np.cumsum(lengths)])
    offsets = np.full((int(window_at[-1]), 2), -1, dtype=np.int32)
    for first, window in zip(window_at, windows, strict=False):
        begin = int(first) + window.context_at
        offsets[begin : begin + len(window.offsets)] = window.offsets
    question_of = np.array([window.example for window in windows], dtype=np.int32)
    context_at = np.array([window.context_at for window in windows], dtype=np.int32)
    return TokenGrid(tuple(question_ids), question_of, window_at, context_at, offsets)


def save_logits(path: Path, grid: TokenGrid, logits: Logits) -> None:
    """Write logits with their grid as safetensors."""
    tensors: dict[str, npt.NDArray[Any]] = {
        "logits": np.ascontiguousarray(logits),  # safetensors writes the memory as it lies
        "question_of": grid.question_of,
        "window_at": grid.window_at,
        "context_at": grid.context_at,
        "offsets": grid.offsets,
    }
    with whole_file(path) as beside:
        save_file(tensors, beside, metadata={"question_ids": json.dumps(grid.question_ids)})


def load_logits(path: Path) -> tuple[TokenGrid, Logits]:
    """Read what `save_logits` wrote."""
    check_manifest(path.parent, [path.name])
    try:
        with safe_open(path, framework="numpy") as file:
            ids = tuple(parse_json(file.metadata()["question_ids"]))
            tensors = {name: file.get_tensor(name) for name in TYPES}
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise FolderError(f"{path}: missing, damaged or not this project's logits ({error}); predict again") from None
    if problem := _odd_content(ids, tensors):
        raise FolderError(f"{path}: damaged or not this project's logits ({problem}); predict again")
    logits = tensors.pop("logits")
    grid = TokenGrid(ids, **tensors)
    if problem := _odd_places(grid):
        raise FolderError(f"{path}: damaged or not this project's logits ({problem}); predict again")
    return grid, logits


def _odd_content(ids: tuple[Any, ...], tensors: Mapping[str, npt.NDArray[Any]]) -> str | None:
    """Return what is wrong with types or sizes; None where they fit."""
    if not all(isinstance(each, str) for each in ids) or len(set(ids)) < len(ids):
        return "question ids that are not texts, or one twice"
    if any(tensor.dtype != TYPES[name] for name, tensor in tensors.items()):
        return "numbers of another type"
    logits, windows = tensors["logits"], tensors["question_of"].size
    shapes: dict[str, tuple[int, ...]] = {
        "question_of": (windows,),
        "window_at": (windows + 1,),
        "context_at": (windows,),
    }
    shapes |= {"offsets": (len(logits), 2), "logits": (len(logits), *logits.shape[1:2])}
    if logits.ndim != 2 or logits.shape[1] < 2 or any(tensors[name].shape != size for name, size in shapes.items()):
        return "tensors of other sizes"
    return None


def _odd_places(grid: TokenGrid) -> str | None:
    """Return what is wrong with a grid's numbers, before anything is looked up by them; None where all fit."""
    tokens = len(grid.offsets)
    lengths = np.diff(grid.window_at)
    if grid.window_at[0] != 0 or grid.window_at[-1] != tokens or (lengths < 1).any():
        return "windows that are not one after the other"
    if (np.diff(grid.question_of) < 0).any() or not np.isin(grid.question_of, np.arange(len(grid.question_ids))).all():
        return "windows of questions that there are none of, or out of order"
    if (grid.context_at < 0).any() or (grid.context_at > lengths).any():
        return "contexts that begin outside their windows"
    if (grid.offsets < -1).any() or (grid.offsets[:, 0] > grid.offsets[:, 1]).any():
        return "tokens that end before they begin"
    return None


def softmax(logits: Logits) -> npt.NDArray[np.float64]:
    """Return each row's probabilities."""
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    shares: npt.NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return shares


def sigmoid(logits: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return the probability of each label by itself."""
    shares: npt.NDArray[np.float64] = 1 / (1 + np.exp(-np.clip(logits.astype(np.float64), -500, 500)))
    return shares


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
