"""run_qa's way from logits to answers (transformers 4), written plainly: the best starts with the best ends, in loops.

It is given what costs the original time: windows without padding, and offsets that need no reading from a data set.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.predictions.logits import Logits, TokenGrid
from bertvision.predictions.prediction import AnswerConfig, Candidate, Prediction

Span = tuple[np.float32, int, int, np.float32, np.float32]  # score, characters from and to, start logit, end logit
NOTHING_FOUND = Candidate("empty", 0.0, 0.0, 0.0)  # its stand-in where no pair of the preselected ones is an answer


class PlainWindow(NamedTuple):
    """One window as run_qa sees it."""

    starts: npt.NDArray[np.float32]
    ends: npt.NDArray[np.float32]
    offsets: npt.NDArray[np.int32]  # -1, -1 outside the context


def windows_by_question(grid: TokenGrid, logits: Logits) -> dict[int, list[PlainWindow]]:
    """Sort the windows by the number of their question."""
    windows: dict[int, list[PlainWindow]] = defaultdict(list)
    for window, question in enumerate(grid.question_of.tolist()):
        tokens = slice(grid.window_at[window], grid.window_at[window + 1])
        windows[question].append(PlainWindow(logits[tokens, 0], logits[tokens, 1], grid.offsets[tokens]))
    return windows


def answer_plainly(
    question_id: str, context: str, windows: Sequence[PlainWindow], config: AnswerConfig, preselected: int
) -> Prediction:
    """Answer one question by all pairs of every window's highest starts and highest ends."""
    found: list[Span] = []
    nulls: list[Span] = []
    for window in windows:
        start, end = window.starts[0], window.ends[0]
        nulls.append((start + end, 0, 0, start, end))
        found += _pairs(window, config.max_answer_length, preselected)
    null = min(nulls)
    ranked = sorted([*found, null], key=lambda span: span[0], reverse=True)[: config.n_best]
    if null not in ranked:
        ranked.append(null)
    candidates = _candidates(ranked, context)
    best = next(candidate for candidate in candidates if candidate.text)
    odds = float(null[0] - best.start_logit - best.end_logit)
    text = "" if odds > config.null_threshold else best.text
    return Prediction(question_id, text, best.text, odds, candidates)


def _pairs(window: PlainWindow, longest: int, preselected: int) -> list[Span]:
    starts, ends, offsets = window.starts, window.ends, window.offsets.tolist()
    best_starts = np.argsort(starts)[: -preselected - 1 : -1].tolist()
    best_ends = np.argsort(ends)[: -preselected - 1 : -1].tolist()
    pairs = []
    for start in best_starts:
        for end in best_ends:
            if offsets[start][0] < 0 or offsets[end][0] < 0:
                continue
            if end < start or end - start + 1 > longest:
                continue
            score = starts[start] + ends[end]
            pairs.append((score, offsets[start][0], offsets[end][1], starts[start], ends[end]))
    return pairs


def _candidates(ranked: Sequence[Span], context: str) -> tuple[Candidate, ...]:
    scores = np.array([span[0] for span in ranked])
    weights = np.exp(scores - scores.max())
    probabilities = weights / weights.sum()
    candidates = [
        Candidate(context[first:stop], float(start), float(end), float(probability))
        for (_, first, stop, start, end), probability in zip(ranked, probabilities, strict=True)
    ]
    return tuple(candidates if len(candidates) > 1 else [NOTHING_FOUND, *candidates])
