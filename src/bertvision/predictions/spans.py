"""Logits -> best valid span or no answer, per question over its windows, with runners-up."""

import math
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F

from bertvision.errors import DataError, TrainingError
from bertvision.features.batches import plan_in_order_of_length
from bertvision.predictions.logits import Logits, TokenGrid
from bertvision.predictions.prediction import AnswerConfig, Candidate, Prediction

CELLS_AT_ONCE = 4_000_000  # start/end pairs scored in one go: 16 MB of float32, inside a CPU's caches and any GPU


class WindowSpans(NamedTuple):
    """The best spans of every window, best first; a score of -inf fills windows that have fewer."""

    scores: npt.NDArray[np.float32]  # [window, rank]
    starts: npt.NDArray[np.int64]  # token of the grid
    ends: npt.NDArray[np.int64]


def predict_spans(
    grid: TokenGrid, logits: Logits, contexts: Sequence[str], config: AnswerConfig, *, has_null: bool
) -> list[Prediction]:
    """Answer every question of the grid, in its order; `contexts` holds each question's context."""
    if not np.isfinite(logits).all():
        raise TrainingError("the logits are not numbers: the model diverged; train it again with a lower learning rate")
    spans = best_spans(grid, np.where(_can_bound_a_span(grid, contexts)[:, None], logits, -np.inf), config)
    null_tokens = grid.window_at[:-1]  # the first token of a window carries "no answer"
    nulls = logits[null_tokens].sum(axis=1)
    predictions = []
    for question, (first, stop) in enumerate(_windows_by_question(grid)):
        found = _ranked(spans, slice(first, stop), config.n_best)
        null = int(null_tokens[first + int(np.argmin(nulls[first:stop]))]) if has_null else None
        predictions.append(_predict(grid, logits, question, contexts[question], found, null, config))
    return predictions


def best_spans(grid: TokenGrid, logits: Logits, config: AnswerConfig) -> WindowSpans:
    """Find each window's best spans: inside the context, end not before start, at most the longest answer."""
    lengths = np.diff(grid.window_at)
    longest = min(config.max_answer_length, int(lengths.max()))
    shape = (grid.num_windows, config.n_best)
    spans = WindowSpans(np.full(shape, -np.inf, np.float32), np.zeros(shape, np.int64), np.zeros(shape, np.int64))
    is_context = torch.from_numpy(grid.offsets[:, 0] >= 0)
    masked = torch.from_numpy(logits).masked_fill(~is_context[:, None], -torch.inf)
    for rows in plan_in_order_of_length(lengths, max(1, CELLS_AT_ONCE // longest)):
        width = int(lengths[rows].max())
        at = torch.from_numpy(grid.window_at[rows])[:, None] + torch.arange(width)
        outside = torch.arange(width) >= torch.from_numpy(lengths[rows])[:, None]
        tile = masked[at.clamp(max=len(masked) - 1)].masked_fill(outside[..., None], -torch.inf)
        scores, starts, ends = _best_pairs(tile[..., 0], tile[..., 1], longest, config.n_best)
        ranks = slice(0, scores.shape[1])
        spans.scores[rows, ranks] = scores.numpy()
        spans.starts[rows, ranks] = grid.window_at[rows][:, None] + starts.numpy()
        spans.ends[rows, ranks] = grid.window_at[rows][:, None] + ends.numpy()
    return spans


def _best_pairs(
    starts: torch.Tensor, ends: torch.Tensor, max_length: int, count: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Score all pairs at once: row by start, column by length - 1."""
    reach = F.pad(ends, (0, max_length - 1), value=-torch.inf).unfold(1, max_length, 1)
    pairs = (starts[..., None] + reach).flatten(start_dim=1)
    scores, places = pairs.topk(min(count, pairs.shape[1]), dim=1)
    first = places // max_length
    return scores, first, first + places % max_length


def _can_bound_a_span(grid: TokenGrid, contexts: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Tell which tokens hold more than blanks: byte-level tokenizers make tokens of line ends, which answer nothing."""
    can_bound = np.zeros(len(grid.offsets), dtype=np.bool_)
    letters_by_context: dict[str, npt.NDArray[np.int64]] = {}
    for window, question in enumerate(grid.question_of):
        context = contexts[question]
        if context not in letters_by_context:
            letters_by_context[context] = np.cumsum([0, *(not letter.isspace() for letter in context)])
        tokens = slice(int(grid.window_at[window]), int(grid.window_at[window + 1]))
        starts, ends = grid.offsets[tokens].T
        letters = letters_by_context[context]
        can_bound[tokens] = (starts >= 0) & (letters[ends] > letters[starts])
    return can_bound


def _windows_by_question(grid: TokenGrid) -> Iterator[tuple[int, int]]:
    bounds = np.searchsorted(grid.question_of, np.arange(len(grid.question_ids) + 1))
    return ((int(first), int(stop)) for first, stop in zip(bounds[:-1], bounds[1:], strict=True))


def _ranked(spans: WindowSpans, windows: slice, count: int) -> list[tuple[int, int]]:
    """Merge the spans of a question's windows, best first; a span that two windows show counts once in each."""
    scores = spans.scores[windows].ravel()
    order = np.argsort(-scores, kind="stable")[:count]
    order = order[np.isfinite(scores[order])]
    starts, ends = spans.starts[windows].ravel()[order], spans.ends[windows].ravel()[order]
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _predict(
    grid: TokenGrid,
    logits: Logits,
    question: int,
    context: str,
    found: list[tuple[int, int]],
    null: int | None,
    config: AnswerConfig,
) -> Prediction:
    ranked = [
        (_text(grid, context, start, end), float(logits[start, 0]), float(logits[end, 1])) for start, end in found
    ]
    if not ranked:
        raise DataError(f"question {grid.question_ids[question]!r}: no token of its context holds more than blanks")
    best, null_odds = ranked[0], None
    text = best[0]
    if null is not None:
        nothing = ("", float(logits[null, 0]), float(logits[null, 1]))
        null_odds = _score(nothing) - _score(best)
        text = "" if null_odds > config.null_threshold else text
        ranked = _with_null(ranked, nothing, config.n_best)
    return Prediction(grid.question_ids[question], text, best[0], null_odds, _with_probabilities(ranked))


def _with_null(
    ranked: list[tuple[str, float, float]], nothing: tuple[str, float, float], count: int
) -> list[tuple[str, float, float]]:
    """Put "no answer" among the candidates; like run_qa, keep it even where it is not one of the best."""
    merged = sorted([*ranked, nothing], key=_score, reverse=True)[:count]
    return merged if nothing in merged else [*merged, nothing]


def _with_probabilities(ranked: list[tuple[str, float, float]]) -> tuple[Candidate, ...]:
    highest = max(map(_score, ranked))
    weights = [math.exp(_score(each) - highest) for each in ranked]
    total = sum(weights)
    return tuple(Candidate(*each, weight / total) for each, weight in zip(ranked, weights, strict=True))


def _score(candidate: tuple[str, float, float]) -> float:
    return candidate[1] + candidate[2]


def _text(grid: TokenGrid, context: str, start: int, end: int) -> str:
    """Cut the answer out of the context, with the marks of a last letter that the tokenizer left out."""
    first, last = int(grid.offsets[start, 0]), int(grid.offsets[end, 1])
    while last < len(context) and unicodedata.category(context[last]).startswith("M"):
        last += 1
    return context[first:last].strip()
