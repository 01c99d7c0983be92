"""The X-ray: what every layer adds to the start and end logits of every token that the model read with an answer."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.data.example import Question
from bertvision.errors import DataError
from bertvision.predictions.pooled import OWN_NULL
from bertvision.serving.answers import Answer
from bertvision.serving.model import ServedModel, pair_up
from bertvision.serving.reader import Reader
from bertvision.windows.tokens import read_layout, tokenise
from bertvision.windows.window import Window, answer_tokens, cut_windows

Floats = npt.NDArray[np.float32]
Side = Literal["special", "question", "context"]
NOTHING = (0, 0)  # the characters of "no answer", as an `Answer` has them
DIGITS = 6  # of the numbers in JSON: sums of 30 of them are right to 1e-4


@dataclass(frozen=True, slots=True)
class XrayToken:
    """A token as it stands in its text, and its characters there; special tokens have a name alone."""

    text: str
    side: Side
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Xray:
    """One window, token by token, and what each part of the head (`layer 0`, ..., `skip`, `bias`) adds there.

    The sum over the parts is exactly the logit; "no answer" is read from token 0.
    """

    tokens: tuple[XrayToken, ...]
    first: int  # the answer's first and last token
    last: int
    parts: tuple[str, ...]
    starts: Floats  # [token, part]
    ends: Floats

    @property
    def start_logits(self) -> Floats:
        """Return every token's logit as the first of an answer."""
        return _sum(self.starts)

    @property
    def end_logits(self) -> Floats:
        """Return every token's logit as the last of an answer."""
        return _sum(self.ends)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        numbers = {name: getattr(self, name) for name in ("starts", "ends", "start_logits", "end_logits")}
        return {
            "tokens": [asdict(token) for token in self.tokens],
            "first": self.first,
            "last": self.last,
            "parts": list(self.parts),
            **{name: np.round(values.astype(np.float64), DIGITS).tolist() for name, values in numbers.items()},
        }


class XrayQuestion(NamedTuple):
    """A question about a context, and the characters of the answer to look through; None: of the one that is given."""

    question: str
    context: str
    answer: tuple[int, int] | None = None


def xray(reader: Reader, question: str, context: str, answer: Answer | None = None) -> Xray:
    """Show what each layer adds to the logits of an answer's window; without `answer`, of the answer that is given.

    `answer` is one of the reader's answers to the same question and context. The head must be a sum over layers.
    """
    pairs, _ = pair_up([question], [context])
    span = None if answer is None else (answer.start, answer.end)
    return xray_answer(reader, XrayQuestion(*pairs[0], span))


def xray_answer(reader: Reader, asked: XrayQuestion) -> Xray:
    """Look through an answer that is named by its characters; texts are checked already."""
    served = reader.served
    served.engine.check_parts()
    question = Question("0", asked.question, asked.context, (), "")
    windows = cut_windows([question], served.tokenizer, served.config.windows, labelled=False)
    if asked.answer is None:
        ((given,),) = reader.answer_pairs([(asked.question, asked.context)])
        asked = asked._replace(answer=(given.start, given.end))
    places = _places(served, asked, windows)
    found = served.parts([place.window for place in places])
    return _xray(served, asked, [(place, *parts) for place, parts in zip(places, found, strict=True)])


class _Place(NamedTuple):
    """A window with the answer's first and last token in it."""

    window: Window
    first: int
    last: int


def _places(served: ServedModel, asked: XrayQuestion, windows: Sequence[Window]) -> list[_Place]:
    """Find the windows that hold all of an answer; "no answer" stands in every one."""
    if asked.answer is None or asked.answer == NOTHING:
        return [_Place(window, 0, 0) for window in windows]
    start, end = asked.answer
    ((_, offsets),) = tokenise(served.tokenizer, [asked.context])
    span = answer_tokens(offsets, start, end) if 0 <= start < end <= len(asked.context) else None
    if span is None:
        raise DataError(
            f"answer: no token stands in characters {start} to {end} of a context of {len(asked.context)}; give the "
            "start and end of one of the answers, 0 and 0 for 'no answer'"
        )
    left, right = offsets[span[0], 0], offsets[span[1], 1]
    found = []
    for window in windows:
        if window.offsets[0, 0] <= left and right <= window.offsets[-1, 1]:
            first, last = answer_tokens(window.offsets, start, end) or span
            found.append(_Place(window, window.context_at + first, window.context_at + last))
    if not found:
        raise DataError(f"answer: characters {start} to {end} are more than the model reads at once; give fewer")
    return found


def _xray(served: ServedModel, asked: XrayQuestion, found: Sequence[tuple[_Place, tuple[str, ...], Floats]]) -> Xray:
    """Choose the window as answers are chosen: where one is farthest above "no answer", and the lowest of these."""
    is_nothing = asked.answer == NOTHING
    own_null = OWN_NULL if served.kind.has_null and not is_nothing else 0.0
    choose = min if is_nothing else max
    place, names, parts = choose(found, key=lambda each: _score(each[0], each[2]) - own_null * _null_score(each[2]))
    tokens = tuple(_tokens(served, asked, place.window))
    return Xray(tokens, place.first, place.last, names, parts[:, :, 0].T, parts[:, :, 1].T)


def _score(place: _Place, parts: Floats) -> float:
    return float(parts[:, place.first, 0].sum() + parts[:, place.last, 1].sum())


def _null_score(parts: Floats) -> float:
    return float(parts[:, 0].sum())


def _tokens(served: ServedModel, asked: XrayQuestion, window: Window) -> Iterator[XrayToken]:
    tokenizer = served.tokenizer
    names = [str(tokenizer.convert_ids_to_tokens(number)) for number in window.ids.tolist()]
    question_at = len(read_layout(tokenizer).before)
    blanks = len(asked.question) - len(asked.question.lstrip())  # which questions lose before they are read
    ((_, offsets),) = tokenise(tokenizer, [asked.question.lstrip()])
    offsets = offsets[: served.config.windows.max_question_length] + blanks
    spans: dict[int, tuple[Side, npt.NDArray[np.int32]]] = {
        **{question_at + place: ("question", span) for place, span in enumerate(offsets)},
        **{window.context_at + place: ("context", span) for place, span in enumerate(window.offsets)},
    }
    for place, name in enumerate(names):
        if place not in spans:
            yield XrayToken(name, "special")
            continue
        side, (start, end) = spans[place][0], spans[place][1].tolist()
        text = asked.question if side == "question" else asked.context
        yield XrayToken(text[start:end] or name, side, start, end)


def _sum(parts: Floats) -> Floats:
    total: Floats = parts.sum(axis=1)
    return total
