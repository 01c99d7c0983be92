"""Logits -> best valid span or no answer, per question over its windows, with runners-up."""

import gc
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from bertvision.errors import DataError, TrainingError
from bertvision.predictions.logits import Logits, TextGrid, TokenGrid, text_bounds, text_grid
from bertvision.predictions.prediction import AnswerConfig, Candidate, Prediction
from bertvision.windows.plan import plan_in_order_of_length

CELLS_IN_CACHE = 250_000  # start/end pairs scored in one go: 1 MB of float32 (4 million took 6 times as long to fill)
Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Band = npt.NDArray[np.float32]  # [window, start, length - 1] scores of spans, as in `training.objective.pair_scores`


class WindowSpans(NamedTuple):
    """The best spans of every window, best first; a score of -inf fills windows that have fewer."""

    scores: npt.NDArray[np.float32]  # [window, rank]
    starts: npt.NDArray[np.int64]  # token of the grid
    ends: npt.NDArray[np.int64]


class Bounds(NamedTuple):
    """Which tokens of a grid may be the first of an answer, and which the last."""

    can_start: Bools
    can_end: Bools


class Ranking(NamedTuple):
    """Possible answers to all questions, question after question, best first."""

    questions: npt.NDArray[np.int64]
    bounds: npt.NDArray[np.int32]  # [answer, 2] characters of the grid's text; 0, 0 for "no answer"
    logits: npt.NDArray[np.float64]  # [answer, 3] start, end, and what a joint readout adds for both
    tokens: npt.NDArray[np.int64]  # [answer, 2] first and last token of the grid; a window's first for "no answer"

    @property
    def scores(self) -> npt.NDArray[np.float64]:
        """Add up the logits, in the order in which a `Candidate` does."""
        scores: npt.NDArray[np.float64] = self.logits[:, 0] + self.logits[:, 1] + self.logits[:, 2]
        return scores

    def with_more(self, other: "Ranking") -> "Ranking":
        """Put other answers behind these."""
        return Ranking(
            np.concatenate([self.questions, other.questions]),
            np.concatenate([self.bounds, other.bounds]),
            np.concatenate([self.logits, other.logits]),
            np.concatenate([self.tokens, other.tokens]),
        )

    def take(self, order: npt.NDArray[np.int64]) -> "Ranking":
        """Return some of the answers."""
        return Ranking(self.questions[order], self.bounds[order], self.logits[order], self.tokens[order])


def predict_spans(
    grid: TokenGrid, logits: Logits, contexts: Sequence[str], config: AnswerConfig, *, has_null: bool
) -> list[Prediction]:
    """Answer every question of the grid, in its order; `contexts` holds each question's context."""
    return decode_spans(text_grid(grid, contexts), logits, config, has_null=has_null)


def decode_spans(
    grid: TextGrid, logits: Logits, config: AnswerConfig, *, has_null: bool, of_windows: Literal["low", "high"] = "low"
) -> list[Prediction]:
    """Answer every question of a grid whose texts are at hand, which serves any number of models.

    `of_windows` says whose "no answer" counts: that of the window with the lowest score, or with the highest.
    """
    ranked = rank_spans(grid, logits, config)
    nothing = rank_nothing(grid.tokens, logits, of_windows) if has_null else None
    return choose_answers(grid, ranked, nothing, config)


def rank_spans(
    grid: TextGrid,
    logits: Logits,
    config: AnswerConfig,
    bounds: Bounds | None = None,
    lowered: Floats | None = None,
) -> Ranking:
    """List the best spans of every question; a span that two windows show is listed once for each.

    `bounds` are the tokens that may be a start and that may be an end; by default, all that hold more than blanks.
    `lowered` [window] is taken off the scores of a window's spans where those of several windows are compared.
    """
    if not np.isfinite(logits).all():
        raise TrainingError("the logits are not numbers: the model diverged; train it again with a lower learning rate")
    bounds = bounds or Bounds(grid.can_bound, grid.can_bound)
    spans = best_spans(grid.tokens, logits, config, *bounds)
    if lowered is not None:
        spans = spans._replace(scores=spans.scores - lowered[:, None])
    ranked = _merge_windows(grid, logits, spans, config.n_best)
    asked = first_of_each(ranked.questions)
    if len(asked) < len(grid.tokens.question_ids):
        lacking = np.setdiff1d(np.arange(len(grid.tokens.question_ids)), ranked.questions[asked])[0]
        question = grid.tokens.question_ids[lacking]
        raise DataError(f"question {question!r}: no token of its context holds more than blanks")
    return ranked


def rank_nothing(grid: TokenGrid, logits: Logits, of_windows: Literal["low", "high"] = "low") -> Ranking:
    """Return every question's "no answer": a window's first token paired with itself, the lowest of its windows."""
    tokens = grid.window_at[:-1]
    scores = null_scores(logits[tokens])
    order = np.lexsort((scores if of_windows == "low" else -scores, grid.question_of))
    lowest = tokens[order[first_of_each(grid.question_of)]]
    questions, bounds = np.arange(len(lowest)), np.zeros((len(lowest), 2), np.int32)
    return Ranking(questions, bounds, _logits_of(logits, lowest, lowest), np.stack([lowest, lowest], axis=1))


def choose_answers(grid: TextGrid, ranked: Ranking, nothing: Ranking | None, config: AnswerConfig) -> list[Prediction]:
    """Choose between every question's best span and "no answer"; `ranked` holds at most `n_best` spans of each."""
    best = ranked.take(first_of_each(ranked.questions))
    null_odds = None
    if nothing is not None:
        null_odds = nothing.scores - best.scores
        ranked = with_null(ranked, nothing, config.n_best)
    return _predictions(grid, best, null_odds, ranked, config.null_threshold)


def with_null(ranked: Ranking, nothing: Ranking, count: int) -> Ranking:
    """Put "no answer" among the candidates; like run_qa, keep it even where it is not one of the best."""
    merged = ranked.with_more(nothing)
    counts, places = np.bincount(ranked.questions)[:, None], np.arange(count + 1)
    spans, nulls = first_of_each(ranked.questions)[:, None] + places, len(ranked.questions) + nothing.questions
    indices = np.where(places < counts, spans, nulls[:, None])  # [question, place]: spans, then no answer, then filling
    keys = np.where(places <= counts, -merged.scores[indices], np.inf)
    order = np.take_along_axis(indices, np.argsort(keys, axis=1, kind="stable"), axis=1)
    is_kept = places <= counts
    is_kept[:, count] &= order[:, count] >= len(ranked.questions)
    return merged.take(order[is_kept])


def first_of_each(questions: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Return where each question begins in a list that is sorted by question."""
    return np.flatnonzero(np.append(True, questions[1:] != questions[:-1]))


def best_spans(
    grid: TokenGrid, logits: Logits, config: AnswerConfig, can_start: Bools | None = None, can_end: Bools | None = None
) -> WindowSpans:
    """Find each window's best spans: inside the context, end not before start, at most the longest answer.

    With more columns than start and end, the product of the start's and the end's factors is part of a span's score.
    `can_start` and `can_end` tell which tokens may be a start or an end; by default, all of the context, and the same.
    """
    lengths = np.diff(grid.window_at)
    longest = min(config.max_answer_length, int(lengths.max()))
    shape = (grid.num_windows, config.n_best)
    spans = WindowSpans(np.full(shape, -np.inf, np.float32), np.zeros(shape, np.int64), np.zeros(shape, np.int64))
    can_start = grid.offsets[:, 0] >= 0 if can_start is None else can_start
    can_end = can_start if can_end is None else can_end
    starts_ends = [_with_place_outside(logits[:, column], can) for column, can in enumerate((can_start, can_end))]
    for rows in plan_in_order_of_length(lengths, max(1, CELLS_IN_CACHE // longest)):
        width = int(lengths[rows].max())
        at = grid.window_at[rows][:, None] + np.arange(width)
        at[np.arange(width) >= lengths[rows][:, None]] = len(logits)
        starts, ends = (each[at] for each in starts_ends)
        band = starts[..., None] + _reach(ends, longest, -np.inf)
        if _rank(logits):
            band += _products(logits.take(at, axis=0, mode="clip")[..., 2:], longest)
        scores, firsts, lasts = _best_pairs(band, config.n_best)
        ranks = slice(0, scores.shape[1])
        spans.scores[rows, ranks] = scores
        spans.starts[rows, ranks] = grid.window_at[rows][:, None] + firsts
        spans.ends[rows, ranks] = grid.window_at[rows][:, None] + lasts
    return spans


def _with_place_outside(column: Floats, is_kept: npt.NDArray[np.bool_]) -> Floats:
    """Put -inf for tokens that are not kept, and one more behind the last token, for padding to point at."""
    column_and_one = np.full(len(column) + 1, -np.inf, np.float32)
    np.copyto(column_and_one[:-1], column, where=is_kept)
    return column_and_one


def _reach(ends: Floats, longest: int, beyond: float) -> Band:
    """Return, for every token of a row, its own and the next tokens' values; `beyond` stands behind the last one."""
    padded = np.pad(ends, ((0, 0), (0, longest - 1)), constant_values=beyond)
    return sliding_window_view(padded, longest, axis=1)


def _products(factors: Floats, longest: int) -> Band:
    """Return `training.objective.bilinear_scores`, factor by factor: the whole would not stay in the cache."""
    of_start, of_end = np.split(factors, 2, axis=-1)
    total = np.zeros((*factors.shape[:2], longest), np.float32)
    for factor in range(of_start.shape[-1]):
        total += of_start[..., factor, None] * _reach(of_end[..., factor], longest, 0.0)
    return total


def _best_pairs(band: Band, count: int) -> tuple[Floats, Places, Places]:
    """Choose among all pairs at once; of equal ones the earlier start, then the shorter span, comes first."""
    max_length, pairs = band.shape[2], band.reshape(len(band), -1)
    places = _highest(pairs, min(count, pairs.shape[1]))
    scores = np.take_along_axis(pairs, places, axis=1)
    order = np.lexsort((places, -scores), axis=1)
    places = np.take_along_axis(places, order, axis=1)
    first = places // max_length
    return np.take_along_axis(scores, order, axis=1), first, first + places % max_length


def _highest(pairs: Floats, count: int) -> Places:
    """Find each row's highest values, in no order: a partition is twice as fast as torch's topk."""
    others = pairs.shape[1] - count
    places = np.argpartition(pairs, others, axis=1)[:, others:]
    lowest = np.take_along_axis(pairs, places, axis=1).min(axis=1, keepdims=True)
    # Which of equal ones a partition keeps depends on how long the row is, padding included.
    for row in np.flatnonzero(((pairs >= lowest).sum(axis=1) > count) & np.isfinite(lowest[:, 0])):
        places[row] = np.argsort(-pairs[row], kind="stable")[:count]
    return places


def _rank(logits: Logits) -> int:
    """Count the factors of a start and of an end: none, but for a joint readout."""
    columns: int = logits.shape[1]
    return (columns - 2) // 2


def null_scores(of_first_tokens: Logits) -> Floats:
    """Score the pair of a first token with itself, which stands for no answer."""
    half = 2 + _rank(of_first_tokens)
    pairs = (of_first_tokens[:, 2:half] * of_first_tokens[:, half:]).sum(axis=1)
    scores: Floats = of_first_tokens[:, :2].sum(axis=1) + pairs
    return scores


def _merge_windows(grid: TextGrid, logits: Logits, spans: WindowSpans, count: int) -> Ranking:
    """Merge the spans of a question's windows, best first; a span that two windows show counts once in each."""
    scores = spans.scores.ravel()
    questions = np.repeat(grid.tokens.question_of.astype(np.int64), spans.scores.shape[1])
    order = np.arange(len(scores))
    several = np.flatnonzero(
        np.bincount(questions)[questions] > spans.scores.shape[1]
    )  # of questions with more windows
    order[several] = several[np.lexsort((-scores[several], questions[several]))]
    place = np.arange(len(order)) - np.searchsorted(questions, questions)  # within a question
    order = order[(place < count) & np.isfinite(scores[order])]
    asked, starts, ends = questions[order], spans.starts.ravel()[order], spans.ends.ravel()[order]
    tokens = np.stack([starts, ends], axis=1)
    return Ranking(asked, text_bounds(grid, asked, starts, ends), _logits_of(logits, starts, ends), tokens)


def _logits_of(logits: Logits, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return what the spans' scores are the sum of, row by span; the third is a joint readout's."""
    half = 2 + _rank(logits)
    pairs = np.vecdot(logits[starts, 2:half], logits[ends, half:])
    return np.stack([logits[starts, 0], logits[ends, 1], pairs], axis=1, dtype=np.float64)


def _predictions(
    grid: TextGrid, best: Ranking, null_odds: npt.NDArray[np.float64] | None, ranked: Ranking, threshold: float
) -> list[Prediction]:
    odds = [None] * len(best.questions) if null_odds is None else null_odds.tolist()
    with _without_collecting():
        return [
            Prediction(question, "" if odd is not None and odd > threshold else text, text, odd, candidates)
            for question, text, odd, candidates in zip(
                grid.tokens.question_ids, _texts(grid, best), odds, _candidates(grid, ranked), strict=True
            )
        ]


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Keep Python from searching for cycles: decoding dev-v2.0 takes 0.9 s of a core, and 1.35 s with the search."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _candidates(grid: TextGrid, ranked: Ranking) -> Iterator[tuple[Candidate, ...]]:
    """Return every question's candidates, with probabilities among them."""
    bounds = [*first_of_each(ranked.questions).tolist(), len(ranked.questions)]
    highest = np.maximum.reduceat(ranked.scores, bounds[:-1])
    # NumPy's exponential differs from Python's in the last digit on some processors.
    weights = list(map(math.exp, (ranked.scores - highest[ranked.questions]).tolist()))
    totals = np.array([sum(weights[first:stop]) for first, stop in pairwise(bounds)])
    probabilities = np.array(weights) / totals[ranked.questions]
    starts, ends, pairs = ranked.logits.T.tolist()
    columns = zip(_texts(grid, ranked), starts, ends, probabilities.tolist(), pairs, strict=True)
    candidates = list(map(partial(tuple.__new__, Candidate), columns))  # _make takes twice as long
    return (tuple(candidates[first:stop]) for first, stop in pairwise(bounds))


def _texts(grid: TextGrid, ranked: Ranking) -> list[str]:
    return [grid.text[first:stop] for first, stop in zip(*ranked.bounds.T.tolist(), strict=True)]
