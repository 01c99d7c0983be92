"""Logits -> answers as `load`, `ask` and `serve` give them: whole words, overlapping spans together, one distribution.

A span begins and ends at words, and reaches over no blank line. Spans that overlap a better one, or have its text but
for punctuation or an article, are the same answer, whose score is the log of the sum of their exp(score). "No
answer" is one more candidate, whose score is lowered by the null threshold. Probabilities are the softmax of score /
temperature over these, so that they add up to 1, and the likelier one of the best answer and "no answer" is given. (To
add spans up at the temperature itself costs F1: docs/log.md.)

The windows of a long text are scored jointly. Raw logits of two windows do not compare; how far a span is above "no
answer" in its own window does. So its score is lowered by how much the null score of its window exceeds the lowest one
of the text, which is that of "no answer": no window has one. A text of one window is scored as it is.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertvision.predictions.logits import Logits, TextGrid, TokenGrid, token_bounds
from bertvision.predictions.prediction import AnswerConfig, DecisionRule, Prediction
from bertvision.predictions.spans import Bounds, Ranking, first_of_each, null_scores, rank_nothing, rank_spans

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
OWN_NULL = 1.0  # how much of the excess of a window's null score counts; at 0, raw logits would be compared

# Han, Kana, Thai, Lao, Tibetan, Burmese, Khmer and Tai are written without blanks between words, and Korean particles
# stand at their nouns without one: there the tokenizer's bounds are the best that there are.
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u2e80-\u2fdf\u3005-\u3007"
    "\u3031-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\ua9e0-\ua9ff\uaa60-\uaadf"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U0001b000-\U0001b16f\U00020000-\U000323af"
)
IS_UNSPACED = re.compile(f"[{UNSPACED}]")
JOINERS = "_\u00ad\u200c"  # soft hyphens, and what stands between two parts of a word
# 1,066 and 3.5 are one word each; so is the s of Coyle's, but an answer may end before the apostrophe.
JOINT = re.compile(r"(?<=\d)[.,](?=\d)|(?<=\S)\u200d(?=\S)")  # the second joins emoji, and letters
EDGES = " \t\n.,;:!?\"'()[]“”‘’«»"
ARTICLE = re.compile(r"(?:a|an|the)\s+", re.IGNORECASE)
BLANK_LINE = re.compile(r"\n[^\S\n]*\n")  # between two sections of a text
CLITIC = re.compile(r"(?<=\w['’])[^\W\d_](?!\w)")


@dataclass(frozen=True)
class Shares:
    """Probabilities of all answers at a null threshold and temperature; those of a question add up to 1."""

    answers: Floats  # [answer]
    nothing: Floats  # [question] 0 where the task has no "no answer"
    best: Indices  # [question] the likeliest answer
    null_odds: Floats  # [question] score of "no answer" minus the best answer's; -inf where there is none


@dataclass(frozen=True)
class PooledAnswers:
    """What every question could be answered: spans, question after question and answer after answer."""

    spans: Ranking  # the first of an answer is its best one
    span_at: Indices  # [answer] its first span
    answer_at: Indices  # [question] its first answer
    nothing: Ranking | None  # "no answer" of every question
    lowered: Floats  # [span] what is taken off its score: its window's null score above the lowest one

    @property
    def questions(self) -> Indices:
        """Return the question of every answer."""
        return self.spans.questions[self.span_at]

    def of(self, question: int) -> range:
        """Return the answers of one question."""
        is_last = question + 1 == len(self.answer_at)
        return range(int(self.answer_at[question]), len(self.span_at) if is_last else int(self.answer_at[question + 1]))

    @property
    def scores(self) -> Floats:
        """Return the score of every answer: log of the sum over its spans of exp(score)."""
        scores = self.spans.scores - self.lowered
        highest = scores[self.span_at]
        sizes = np.diff(self.span_at, append=len(scores))
        return highest + np.log(np.add.reduceat(np.exp(scores - np.repeat(highest, sizes)), self.span_at))

    @property
    def null_scores(self) -> Floats:
        """Return the score of "no answer" to every question; -inf where the task has none."""
        return np.full(len(self.answer_at), -np.inf) if self.nothing is None else self.nothing.scores

    def shares(self, threshold: float, temperature: float) -> Shares:
        """Return the softmax of score / temperature, "no answer" scoring less by the threshold."""
        scores, questions, nothing = self.scores, self.questions, self.null_scores
        best = _highest_of_each(scores, questions, self.answer_at)
        top = np.maximum(scores[best], nothing - threshold)
        weights = np.exp((scores - top[questions]) / temperature)
        null_weights = np.exp((nothing - threshold - top) / temperature)
        totals = np.add.reduceat(weights, self.answer_at) + null_weights
        return Shares(weights / totals[questions], null_weights / totals, best, nothing - scores[best])


def decode_as_reader(
    grid: TextGrid, logits: Logits, config: AnswerConfig, rule: DecisionRule, *, has_null: bool
) -> list[Prediction]:
    """Answer every question of the grid as `load`, `ask` and `serve` do, with the probability of each answer."""
    pooled = pool_answers(grid, logits, config, has_null=has_null)
    shares = pooled.shares(rule.fitted_threshold, rule.temperature)
    abstains = shares.null_odds > rule.null_threshold
    bounds = pooled.spans.bounds[pooled.span_at[shares.best]].tolist()
    columns = (
        grid.tokens.question_ids,
        bounds,
        abstains.tolist(),
        shares.null_odds.tolist(),
        np.where(abstains, shares.nothing, shares.answers[shares.best]).tolist(),
        shares.nothing.tolist(),
    )
    found = []
    for question, (start, end), is_empty, odds, probability, nothing in zip(*columns, strict=True):
        span = grid.text[start:end]
        text = "" if is_empty else span
        of_nothing = (odds, nothing) if has_null else (None, None)
        found.append(Prediction(question, text, span, of_nothing[0], (), probability, of_nothing[1]))
    return found


def pool_answers(
    grid: TextGrid, logits: Logits, config: AnswerConfig, *, has_null: bool, own_null: float = OWN_NULL
) -> PooledAnswers:
    """Put the best spans of every question together to answers, best first."""
    lowered = _excess(grid.tokens, logits) * np.float32(own_null if has_null else 0.0)
    ranked = _within_sections(
        grid, rank_spans(grid, logits, config, _word_bounds(grid, config.max_answer_length), lowered)
    )
    pools = [
        pool
        for first, stop in zip(*_extents(ranked.questions), strict=True)
        for pool in _pools(grid.text, ranked.bounds[first:stop].tolist(), first)
    ]
    spans = ranked.take(np.array([place for pool in pools for place in pool], np.int64))
    span_at = np.cumsum([0, *(len(pool) for pool in pools[:-1])])
    answer_at = first_of_each(spans.questions[span_at])
    window_of = np.searchsorted(grid.tokens.window_at, spans.tokens[:, 0], side="right") - 1
    nothing = rank_nothing(grid.tokens, logits) if has_null else None
    return PooledAnswers(spans, span_at, answer_at, nothing, lowered[window_of].astype(np.float64))


def _excess(grid: TokenGrid, logits: Logits) -> npt.NDArray[np.float32]:
    """Return by how much every window's score of "no answer" exceeds the lowest of its question's windows."""
    scores = null_scores(logits[grid.window_at[:-1]])
    lowest = np.minimum.reduceat(scores, first_of_each(grid.question_of))
    excess: npt.NDArray[np.float32] = scores - lowest[grid.question_of]
    return excess


def _pools(text: str, bounds: Sequence[Sequence[int]], first: int) -> list[list[int]]:
    """Put each span, best first, to the first answer whose best span it overlaps or says the same as."""
    pools: list[tuple[int, int, str, list[int]]] = []
    seen = set()
    for place, (start, end) in enumerate(bounds, start=first):
        if (start, end) in seen:  # another window shows it too, and likes it less
            continue
        seen.add((start, end))
        words = _what_counts(text[start:end])
        for begin, stop, same, pool in pools:
            if (start < stop and begin < end) or words == same:
                pool.append(place)
                break
        else:
            pools.append((start, end, words, [place]))
    return [pool for *_, pool in pools]


def _what_counts(answer: str) -> str:
    """Return an answer without punctuation at its ends and an article: all of it where nothing else is there."""
    bare = answer.strip(EDGES)
    return ARTICLE.sub("", bare, count=1) if ARTICLE.match(bare) else bare or answer


def _within_sections(grid: TextGrid, ranked: Ranking) -> Ranking:
    """Leave out spans that reach over a blank line, unless a question has no others."""
    borders = np.array([match.start() for match in BLANK_LINE.finditer(grid.text)], np.int64)
    first, stop = (np.searchsorted(borders, ranked.bounds[:, side]) for side in (0, 1))
    is_within = first == stop
    has_any = np.bincount(ranked.questions, weights=is_within) > 0
    return ranked.take(np.flatnonzero(is_within | ~has_any[ranked.questions]))


def _word_bounds(grid: TextGrid, longest: int) -> Bounds:
    """Return where words begin and end; all tokens for a question that has no span of whole words in any window."""
    inside = inside_words(grid.text)
    firsts, stops = token_bounds(grid)
    can_start, can_end = grid.can_bound & ~inside[firsts], grid.can_bound & ~inside[stops]
    window_of = np.repeat(np.arange(grid.tokens.num_windows), np.diff(grid.tokens.window_at))
    places = np.arange(len(window_of))
    # The nearest end from each token on makes the shortest span that begins there.
    ends = np.minimum.accumulate(np.where(can_end, places, len(places))[::-1])[::-1]
    reached = np.minimum(ends, len(places) - 1)
    makes_span = can_start & (ends - places < longest) & (window_of[reached] == window_of)
    lacks = np.bincount(grid.tokens.question_of[window_of[makes_span]], minlength=len(grid.tokens.question_ids)) == 0
    is_free = grid.can_bound & lacks[grid.tokens.question_of[window_of]]
    return Bounds(can_start | is_free, can_end | is_free)


def _extents(questions: Indices) -> tuple[list[int], list[int]]:
    firsts = first_of_each(questions).tolist()
    return firsts, [*firsts[1:], len(questions)]


def _highest_of_each(values: Floats, questions: Indices, firsts: Indices) -> Indices:
    """Return where each question's highest value stands, the first of equals."""
    highest = np.maximum.reduceat(values, firsts)
    places = np.flatnonzero(values == highest[questions])
    return places[first_of_each(questions[places])]


def inside_words(text: str) -> Bools:
    """Return for every place of a text, its end included, whether a word begins before it and ends behind it."""
    is_word, is_mark = np.zeros(len(text) + 1, np.bool_), np.zeros(len(text) + 1, np.bool_)
    kinds = {letter: _kind(letter) for letter in set(text)}
    is_word[:-1] = [kinds[letter][0] for letter in text]
    is_mark[:-1] = [kinds[letter][1] for letter in text]
    is_inside = is_word & np.roll(is_word, 1) | is_mark  # behind the last letter stands nothing, before the first too
    for match in JOINT.finditer(text):
        is_inside[[match.start(), match.end()]] = True
    is_inside[[match.start() for match in CLITIC.finditer(text)]] = True
    is_inside[0] = False
    return is_inside


def _kind(letter: str) -> tuple[bool, bool]:
    """Return whether a character is part of words between blanks, and whether it belongs to the one before it."""
    category = unicodedata.category(letter)
    is_word = category[0] in "LNM" or letter in JOINERS
    return is_word and IS_UNSPACED.match(letter) is None, category[0] == "M"
