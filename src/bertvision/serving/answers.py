"""What comes out: answers, classes and tags with their probabilities and characters, and lines that show answers.

No torch in here.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.text import Text

SENTENCE_END = re.compile(r"[.!?][\"'”’)\]]*\s+|\n+")
LONG = 4000  # characters, about a page: of a longer text it is also told where answers stand
AROUND = 240  # characters of a sentence that are shown before and after the answer
MOST_TIMES = 1e6  # that "no answer" is likelier than the best answer; a threshold beyond it means never
BAR = 20  # blocks of the longest bar
NO_ANSWER = "(no answer)"
UNSURE = "no sure answer; closest: "
TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@dataclass(frozen=True, slots=True)
class LayerPart:
    """What one part of a head, such as `layer 3`, adds to the logits of an answer's start and end."""

    name: str
    start: float
    end: float

    @property
    def score(self) -> float:
        """Return what it adds to the answer's score."""
        return self.start + self.end


@dataclass(frozen=True, slots=True)
class Answer:
    """One possible answer; `context[start:end]` is its text, which is empty where the answer is "no answer".

    Where one question was asked of several texts, `contexts[answer.context][start:end]` is.
    """

    text: str
    start: int
    end: int
    probability: float  # overlapping spans and other places with this text together; all of a question add up to 1
    no_answer_probability: float | None  # None where the model was trained without unanswerable questions
    score: float  # of its best span: start logit + end logit (+ what a joint readout adds for both)
    window: tuple[int, int]  # the characters of the context that the model saw together with it
    is_question_cut: bool  # whether the question was longer than the model reads, and lost its end
    context: int = 0  # the number of its text, from 0, where one question was asked of several texts together
    layers: tuple[LayerPart, ...] | None = None  # where asked for; their sum is the score

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values; layers only where asked for."""
        content = asdict(self) | {"window": list(self.window)}
        parts = content.pop("layers")
        return content if parts is None else {**content, "layers": list(parts)}


@dataclass(frozen=True, slots=True)
class Classification:
    """What a model says of a text: its class or best ending, its labels, or a number."""

    label: str | tuple[str, ...] | float
    probability: float | None  # of the class or ending; labels have one each, a number has none
    probabilities: dict[str, float]  # by name of class, label or ending
    is_text_cut: bool = False  # whether the text was longer than the model reads, and lost its end

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        label = list(self.label) if isinstance(self.label, tuple) else self.label
        return asdict(self) | {"label": label}


@dataclass(frozen=True, slots=True)
class TaggedWord:
    """A word, its characters [start, end) in the text, and its tag."""

    text: str
    start: int
    end: int
    tag: str
    probability: float


@dataclass(frozen=True, slots=True)
class FoundEntity:
    """Neighbouring words that are one thing, as sure as the least sure of them."""

    text: str
    start: int
    end: int
    type: str
    probability: float


@dataclass(frozen=True, slots=True)
class Tagging:
    """A text's words with their tags, and what they make up."""

    words: tuple[TaggedWord, ...]
    entities: tuple[FoundEntity, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {"words": [asdict(word) for word in self.words], "entities": [asdict(each) for each in self.entities]}


def answer_lines(
    answers: Sequence[Answer],
    contexts: Sequence[str],
    names: Sequence[str] = (),
    *,
    is_terminal: bool,
    null_ratio: float | None = None,
) -> Iterator[Text]:
    """Return the first answer with its sentence, then the others; without a terminal, brackets mark the answer.

    Where "no answer" is the first, the one that comes closest stands in its place, and is said to be no sure one.
    `names` are those of the texts, where there are several. `null_ratio` is what a threshold that was asked for means:
    without one, the likelier of the two is given.
    """
    best, *others = answers
    is_sure, layers = bool(best.text) or not others, best.layers
    if not is_sure:  # what comes closest is of more use than nothing
        best, *others = others
    context, place = contexts[best.context], _place(best, contexts, names)
    said = printable(best.text) or NO_ANSWER
    yield Text(said if is_sure else f"{UNSURE}{said}{place and f' ({place})'}", "bold" if is_terminal else "")
    yield Text(_probabilities(best))
    if null_ratio is not None:
        yield Text(_rule(null_ratio))
    if best.is_question_cut:
        yield Text("the question is longer than the model reads; its end was left out")
    if best.text:
        yield Text()
        yield _in_sentence(best, context, is_terminal)
        if place:
            yield Text(place + _characters(best, context))
    if others:
        yield Text("\nnext best:")
        yield from (Text(_line(each, _place(each, contexts, names))) for each in others)
    if layers is not None:
        yield Text("\nwhat each layer adds to the score:")
        yield from _bars(layers)


def printable(text: str) -> str:
    """Put blanks for line ends and for what could steer a terminal."""
    return "".join(" " if _steers(letter) else letter for letter in text)


def percent(share: float) -> str:
    """Write a probability as a whole number of percent; only what is certain is said to be."""
    return "<1%" if 0 < share < 0.005 else ">99%" if 0.995 < share < 1 else f"{int(100 * share + 0.5)}%"


def sentence_around(context: str, start: int, end: int) -> tuple[int, int]:
    """Find where the sentence of some characters begins and ends, at most `AROUND` characters away, between words."""
    first, stop = max(0, start - AROUND), min(len(context), end + AROUND)
    before = [match.end() for match in SENTENCE_END.finditer(context, first, start) if match.end() <= start]
    after = SENTENCE_END.search(context, end, stop)
    begin = before[-1] if before else _word_from(context, first, start)
    return begin, after.end() if after else _word_until(context, end, stop)


def _word_from(context: str, first: int, start: int) -> int:
    """Return where the first whole word from `first` on begins; `first` where there is no blank before `start`."""
    if first == 0 or context[first - 1].isspace():
        return first
    return next((place for place in range(first, start) if context[place].isspace()), first)


def _word_until(context: str, end: int, stop: int) -> int:
    """Return where the last whole word until `stop` ends; `stop` where there is no blank after `end`."""
    if stop == len(context) or context[stop].isspace():
        return stop
    return next((place for place in range(stop, end, -1) if context[place - 1].isspace()), stop)


def _steers(letter: str) -> bool:
    # Control characters, line ends, and what turns the direction of the text around it.
    return unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(letter) in TURNS


def _probabilities(answer: Answer) -> str:
    shown = f"probability {percent(answer.probability)}"
    if answer.no_answer_probability is None or not answer.text:
        return shown
    return f"{shown}; that there is no answer {percent(answer.no_answer_probability)}"


def line_of(answer: Answer, contexts: Sequence[str]) -> int:
    """Return the line of its text that an answer begins on, counted from 1."""
    return contexts[answer.context].count("\n", 0, answer.start) + 1


def _place(answer: Answer, contexts: Sequence[str], names: Sequence[str]) -> str:
    """Say where an answer stands: in which of several texts and on which line; nothing of a short text alone."""
    if not answer.text or not (names or len(contexts[answer.context]) > LONG):
        return ""
    name = f"{printable(names[answer.context])}, " if names else ""
    return f"{name}line {line_of(answer, contexts):,}"


def _characters(answer: Answer, context: str) -> str:
    if len(context) <= LONG:
        return ""
    return f", characters {answer.start:,} to {answer.end:,} of {len(context):,}"


def _line(answer: Answer, place: str) -> str:
    """Return one of the next best answers, with where it stands."""
    return f"  {percent(answer.probability):>4}  {printable(answer.text) or NO_ANSWER}{place and f'  ({place})'}"


def _rule(null_ratio: float) -> str:
    if null_ratio > MOST_TIMES:
        return "as asked, always an answer"
    return f"as asked, no answer where that is more than {null_ratio:.3g} times as likely as the best answer"


def _in_sentence(answer: Answer, context: str, is_terminal: bool) -> Text:
    first, stop = sentence_around(context, answer.start, answer.end)
    before, after = (printable(part) for part in (context[first : answer.start], context[answer.end : stop]))
    marked = Text(printable(answer.text), "bold reverse") if is_terminal else Text(f"[{printable(answer.text)}]")
    return Text.assemble(before.lstrip(), marked, after.rstrip())


def _bars(parts: Sequence[LayerPart]) -> Iterator[Text]:
    longest = max((abs(part.score) for part in parts), default=0.0) or 1.0
    width = max(len(part.name) for part in parts)
    for part in parts:
        bar = ("█" if part.score > 0 else "░") * round(BAR * abs(part.score) / longest)
        yield Text(f"  {part.name:<{width}}  {part.score:+8.3f}  {bar}".rstrip())
    yield Text(f"  {'sum':<{width}}  {sum(part.score for part in parts):+8.3f}")
