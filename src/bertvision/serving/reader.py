"""Question and context in, answers out."""

import math
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple, TypedDict, Unpack, overload

import numpy as np

from bertvision.data.example import Question
from bertvision.errors import DataError, SettingsError
from bertvision.model_config import Calibration
from bertvision.predictions.logits import Logits, TextGrid, TokenGrid, grid_of, text_grid
from bertvision.predictions.pooled import PooledAnswers, Shares, pool_answers
from bertvision.predictions.prediction import AnswerConfig
from bertvision.predictions.spans import Ranking
from bertvision.progress import SILENT, Progress
from bertvision.serving.answers import Answer, LayerPart
from bertvision.serving.model import Saveable, ServedModel, check_text, list_texts
from bertvision.settings import ConfigType
from bertvision.windows.tokens import slices, token_ids
from bertvision.windows.window import Window, cut_windows

LARGEST = 700.0  # whose exponential is still a number
SAYING = ("L", "N", "Sc", "So")  # Unicode's categories of letters, digits, signs of currencies, and emoji


class Placed(NamedTuple):
    """An answer, and its first and last token of the grid."""

    answer: Answer
    tokens: tuple[int, int]


class _Candidate(NamedTuple):
    """An answer of a ranking, and its probability."""

    ranking: Ranking
    place: int
    share: float


def decode_answers(
    grid: TextGrid,
    logits: Logits,
    config: AnswerConfig,
    calibration: Calibration,
    are_cut: Sequence[bool],
    *,
    has_null: bool,
    threshold: float | None = None,
) -> list[list[Placed]]:
    """List every question's answers: the one that is given, then the others, the likeliest first.

    Others that are punctuation alone, such as a full stop, are left out; their probability stays theirs.
    Probabilities are the reader decoder's at the calibrated threshold and temperature, whichever `threshold` this call
    decides by. "No answer" is given where its score exceeds the best answer's by more than the threshold; at the
    calibrated one this is where it is the likelier of the two.
    """
    pooled = pool_answers(grid, logits, config, has_null=has_null)
    shares = pooled.shares(calibration.threshold, calibration.temperature)
    abstains = shares.null_odds > (calibration.threshold if threshold is None else threshold)
    nothing = shares.nothing.tolist() if has_null else [None] * len(are_cut)
    return [
        [
            _placed(grid, each, nothing[question], is_cut)
            for each in _candidates(grid.text, pooled, shares, question, bool(abstains[question]))
        ]
        for question, is_cut in enumerate(are_cut)
    ]


def _candidates(text: str, pooled: PooledAnswers, shares: Shares, question: int, abstains: bool) -> list[_Candidate]:
    """Rank the answers of a question, and put the one that is given first: also a full stop, as scores count it."""
    answers = [
        _Candidate(pooled.spans, int(pooled.span_at[each]), float(shares.answers[each])) for each in pooled.of(question)
    ]
    answers.sort(key=lambda each: -each.share)  # stable: of equal ones, the one with the better span
    best, others = answers[0], [each for each in answers[1:] if _says_something(text, each)]
    if pooled.nothing is None:
        return [best, *others]
    nothing = _Candidate(pooled.nothing, question, float(shares.nothing[question]))
    if abstains:
        return [nothing, *(each for each in answers if _says_something(text, each))]
    return [best, *sorted([nothing, *others], key=lambda each: -each.share)]


def _says_something(text: str, candidate: _Candidate) -> bool:
    """Return whether an answer has a letter, a digit, or a sign such as an emoji or of a currency."""
    start, end = candidate.ranking.bounds[candidate.place].tolist()
    return any(unicodedata.category(letter).startswith(SAYING) for letter in text[start:end])


def _placed(grid: TextGrid, candidate: _Candidate, nothing: float | None, is_cut: bool) -> Placed:
    ranking, place, share = candidate
    first, last = ranking.tokens[place].tolist()
    start, stop = ranking.bounds[place].tolist()
    at = int(grid.context_at[ranking.questions[place]]) if stop else 0
    score, window = sum(ranking.logits[place].tolist()), _window(grid, first)
    answer = Answer(grid.text[start:stop], start - at, stop - at, share, nothing, score, window, is_cut)
    return Placed(answer, (first, last))


def _window(grid: TextGrid, token: int) -> tuple[int, int]:
    """Return the characters of the context that stand in a token's window."""
    window = int(np.searchsorted(grid.tokens.window_at, token, side="right")) - 1
    offsets = grid.tokens.offsets[slice(*grid.tokens.window_at[window : window + 2])]
    inside = offsets[offsets[:, 0] >= 0]
    return int(inside[0, 0]), int(inside[-1, 1])


class Asking(NamedTuple):
    """How questions are asked; None: as the model was trained and calibrated."""

    top_k: int = 1
    null_threshold: float | None = None
    max_answer_length: int | None = None  # in tokens
    layers: bool = False


Texts = list[str] | tuple[str, ...]
Asked = tuple[str, str | tuple[str, ...]]  # a question, and the text or texts that may answer it


class ReadingOptions(TypedDict, total=False):
    """What may be said beside question and context; see `Reader.__call__`."""

    null_threshold: float | None
    max_answer_length: int | None
    layers: bool
    progress: Progress


@dataclass(frozen=True, repr=False)
class Reader(Saveable):
    """A model that finds answers in texts."""

    served: ServedModel

    @property
    def has_null(self) -> bool:
        """Return whether it can say that a text holds no answer."""
        return self.served.kind.has_null

    def null_ratio(self, null_threshold: float) -> float:
        """Return how many times as likely as the best answer "no answer" must be to be given at a threshold."""
        fitted = self.served.calibration
        return math.exp(min((null_threshold - fitted.threshold) / fitted.temperature, LARGEST))

    @overload
    def __call__(
        self, question: str, context: str | Texts, *, top_k: None = None, **more: Unpack[ReadingOptions]
    ) -> Answer: ...

    @overload
    def __call__(
        self, question: str, context: str | Texts, *, top_k: int, **more: Unpack[ReadingOptions]
    ) -> list[Answer]: ...

    @overload
    def __call__(
        self,
        question: Texts,
        context: str | Sequence[str | Texts],
        *,
        top_k: None = None,
        **more: Unpack[ReadingOptions],
    ) -> list[Answer]: ...

    @overload
    def __call__(
        self,
        question: str | Texts,
        context: str | Sequence[str | Texts],
        *,
        top_k: int | None = None,
        **more: Unpack[ReadingOptions],
    ) -> Any: ...  # noqa: ANN401 (a list of answers for each question)

    def __call__(
        self,
        question: Any,  # noqa: ANN401 (checked in `pair_questions`)
        context: Any,  # noqa: ANN401
        *,
        top_k: int | None = None,
        null_threshold: float | None = None,
        max_answer_length: int | None = None,
        layers: bool = False,
        progress: Progress = SILENT,
    ) -> Any:  # noqa: ANN401 (an Answer, or lists)
        """Answer a question about a context, or each of a list about one context or its own: an `Answer` for each.

        A question about a list of texts has one answer, from whichever text holds it; `context` of the answer is the
        number of that text. With `top_k` each has a list of answers instead: the one that is given, then the others,
        best first, at most as many as the model's n-best list is long. All probabilities of a question add up to 1, and
        the likelier one of the best answer and "no answer" is given. `null_threshold` takes the place of the model's
        own in this decision, not in the probabilities: abstain where the null odds (the score of "no answer" minus the
        best answer's) exceed it (inf: never). `max_answer_length` is in tokens. With `layers` answers carry what each
        layer adds to their scores, where the head is a sum over layers. `progress` is told of every batch.
        """
        pairs, is_one = pair_questions(question, context)
        asking = Asking(1 if top_k is None else top_k, null_threshold, max_answer_length, layers)
        found = self.answer_pairs(pairs, asking, progress)
        answers = [each[0] for each in found] if top_k is None else found
        return answers[0] if is_one else answers

    def answer_pairs(
        self, pairs: Sequence[Asked], asking: Asking | None = None, progress: Progress = SILENT
    ) -> list[list[Answer]]:
        """Answer checked pairs of a question and its text or texts, all in the same way, each as if asked alone."""
        return self._answer(pairs, self._cut(pairs), asking or Asking(), progress)

    def answer_each(
        self, pairs: Sequence[Asked], asking: Asking, progress: Progress = SILENT
    ) -> Iterator[list[Answer]]:
        """Answer checked pairs one after the other; a text that several have is cut once."""
        for pair, windows in zip(pairs, self._cut(pairs), strict=True):
            yield from self._answer([pair], [windows], asking, progress)

    def _cut(self, pairs: Sequence[Asked]) -> list[list[Window]]:
        """Cut the texts of each pair as if they were one, but no window reaches into two."""
        owners = [
            (number, question, begin, text)
            for number, (question, contexts) in enumerate(pairs)
            for begin, text in zip(_begins(contexts), _listed(contexts), strict=True)
        ]
        questions = [Question(str(number), question, text, (), "") for number, question, _, text in owners]
        found: list[list[Window]] = [[] for _ in pairs]
        if questions:
            for window in cut_windows(questions, self.served.tokenizer, self.served.config.windows, labelled=False):
                number, _, begin, _ = owners[window.example]
                found[number].append(replace(window, offsets=window.offsets + np.int32(begin)))
        return found

    def _answer(
        self, pairs: Sequence[Asked], cut: Sequence[Sequence[Window]], asking: Asking, progress: Progress
    ) -> list[list[Answer]]:
        """Answer pairs whose texts have been cut."""
        _check(asking)
        served = self.served
        if asking.layers:
            served.engine.check_parts()
        if not pairs:
            return []
        texts, begins = zip(*((_listed(contexts), _begins(contexts)) for _, contexts in pairs), strict=True)
        windows = [replace(window, example=number) for number, own in enumerate(cut) for window in own]
        grid = text_grid(
            grid_of(windows, [str(number) for number in range(len(pairs))]), ["\n".join(own) for own in texts]
        )
        found = decode_answers(
            grid,
            served.logits(windows, progress),
            _changed(served.config.answers, max_answer_length=asking.max_answer_length),
            served.calibration,
            self._are_cut(pairs),
            has_null=self.has_null,
            threshold=asking.null_threshold,
        )
        kept = [
            [_in_own_text(placed, own) for placed in each[: asking.top_k]]
            for each, own in zip(found, begins, strict=True)
        ]
        if not asking.layers:
            return [[placed.answer for placed in each] for each in kept]
        return _with_layers(kept, served, windows, grid.tokens)

    def _are_cut(self, pairs: Sequence[Asked]) -> list[bool]:
        """Return which questions are longer than the model reads."""
        longest = self.served.config.windows.max_question_length
        if longest is None:
            return [False] * len(pairs)
        texts = slices([question.lstrip() for question, _ in pairs])
        return [len(ids) > longest for part in texts for ids in token_ids(self.served.tokenizer, part)]


def pair_questions(question: Any, context: Any) -> tuple[list[Asked], bool]:  # noqa: ANN401 (checked here)
    """Check questions and give each its text or texts; tell whether it is one question.

    One question has all texts that were given; of several each has all of one text, or its own.
    """
    questions, is_one = list_texts("question", question)
    if is_one:
        return [(questions[0], _texts_of("context", context))], True
    if not isinstance(context, list | tuple):
        return [(each, check_text("context", context)) for each in questions], False
    contexts = [_texts_of(f"context {number}", each) for number, each in enumerate(context)]
    if len(questions) != len(contexts):
        raise DataError(
            f"{len(questions)} questions and {len(contexts)} contexts; give one context for each, or one for all"
        )
    return list(zip(questions, contexts, strict=True)), False


def _texts_of(what: str, value: Any) -> str | tuple[str, ...]:  # noqa: ANN401 (checked here)
    texts, is_one = list_texts(what, value)
    if not texts:
        raise DataError(f"{what}: is an empty list; give one text or more")
    return texts[0] if is_one else tuple(texts)


def _listed(contexts: str | tuple[str, ...]) -> tuple[str, ...]:
    return (contexts,) if isinstance(contexts, str) else contexts


def _begins(contexts: str | tuple[str, ...]) -> list[int]:
    """Return where each text begins in the one that they make up."""
    return list(accumulate((len(each) + 1 for each in _listed(contexts)[:-1]), initial=0))


def _in_own_text(placed: Placed, begins: Sequence[int]) -> Placed:
    """Count an answer's characters within its own text."""
    answer, (first, stop) = placed.answer, placed.answer.window
    number = bisect_right(begins, first) - 1
    at = begins[number]
    moved = at if answer.text else 0
    return placed._replace(
        answer=replace(
            answer,
            start=answer.start - moved,
            end=answer.end - moved,
            window=(first - at, stop - at),
            context=number,
        )
    )


def _check(asking: Asking) -> None:
    if asking.top_k < 1:
        raise SettingsError(f"top_k is {asking.top_k}; give 1 or more")
    if asking.max_answer_length is not None and asking.max_answer_length < 1:
        raise SettingsError(f"max_answer_length is {asking.max_answer_length}; give 1 token or more")
    if asking.null_threshold is not None and math.isnan(asking.null_threshold):
        raise SettingsError("null_threshold is not a number; give one, or inf to answer always")


def _changed(config: ConfigType, **asked: float | None) -> ConfigType:
    """Put what was asked for in the place of the model's own."""
    return config.model_copy(update={name: value for name, value in asked.items() if value is not None})


def _with_layers(
    found: list[list[Placed]], served: ServedModel, windows: Sequence[Window], grid: TokenGrid
) -> list[list[Answer]]:
    """Take the answers' scores apart by layers: a second pass, over the windows that they stand in."""
    spans = np.array([placed.tokens for each in found for placed in each], np.int64)
    window_of = np.searchsorted(grid.window_at, spans[:, 0], side="right") - 1
    places = spans - grid.window_at[window_of][:, None]
    wanted, own = np.unique(window_of, return_inverse=True)
    parts_of = served.parts([windows[window] for window in wanted])
    layers = iter(
        tuple(map(LayerPart, names, parts[:, first, 0].tolist(), parts[:, last, 1].tolist()))
        for (names, parts), (first, last) in zip((parts_of[each] for each in own), places.tolist(), strict=True)
    )
    return [[replace(placed.answer, layers=next(layers)) for placed in each] for each in found]
