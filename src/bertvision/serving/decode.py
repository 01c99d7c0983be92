"""Logits -> every question's answers with characters, probabilities and windows, the one that is given first."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bertvision.model_config import Calibration
from bertvision.predictions.logits import Logits
from bertvision.predictions.prediction import AnswerConfig
from bertvision.predictions.reader_decoder import PooledAnswers, Shares, pool_answers
from bertvision.predictions.spans import Ranking
from bertvision.predictions.texts import TextGrid
from bertvision.serving.answer import Answer


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
            for each in _candidates(pooled, shares, question, bool(abstains[question]))
        ]
        for question, is_cut in enumerate(are_cut)
    ]


def _candidates(pooled: PooledAnswers, shares: Shares, question: int, abstains: bool) -> list[_Candidate]:
    """Rank the answers of a question, and put the one that is given first."""
    answers = [
        _Candidate(pooled.spans, int(pooled.span_at[each]), float(shares.answers[each])) for each in pooled.of(question)
    ]
    answers.sort(key=lambda each: -each.share)  # stable: of equal ones, the one with the better span
    if pooled.nothing is None:
        return answers
    nothing = _Candidate(pooled.nothing, question, float(shares.nothing[question]))
    if abstains:
        return [nothing, *answers]
    return [answers[0], *sorted([nothing, *answers[1:]], key=lambda each: -each.share)]


def _placed(grid: TextGrid, candidate: _Candidate, nothing: float | None, is_cut: bool) -> Placed:
    ranking, place, share = candidate
    first, last = ranking.tokens[place].tolist()
    start, stop = ranking.bounds[place].tolist()
    at = int(grid.context_at[ranking.questions[place]]) if stop else 0
    score, window = sum(ranking.logits[place].tolist()), _window(grid, first)
    answer = Answer(grid.text[start:stop], start - at, stop - at, share, nothing, score, window, is_cut)
    return Placed(answer, (first, last))


def _window(grid: TextGrid, token: int) -> tuple[int, int]:
    """Give the characters of the context that stand in a token's window."""
    window = int(np.searchsorted(grid.tokens.window_at, token, side="right")) - 1
    offsets = grid.tokens.offsets[slice(*grid.tokens.window_at[window : window + 2])]
    inside = offsets[offsets[:, 0] >= 0]
    return int(inside[0, 0]), int(inside[-1, 1])
