"""Logits -> every question's answers with characters, probabilities and windows, the one that is given first."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.predictions.logits import Logits
from bertvision.predictions.prediction import AnswerConfig
from bertvision.predictions.spans import Ranking, first_of_each, rank_nothing, rank_spans, with_null
from bertvision.predictions.texts import TextGrid
from bertvision.serving.answer import Answer
from bertvision.serving.calibration import Calibration

Floats = npt.NDArray[np.float64]


class Placed(NamedTuple):
    """An answer, and its first and last token of the grid."""

    answer: Answer
    tokens: tuple[int, int]


class _Candidates(NamedTuple):
    """What one question could be answered, best first; those with one text are one."""

    texts: dict[str, int]  # where each stands in the question's ranking, at its best place
    shares: dict[str, float]


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
    """List every question's answers; "no answer" is first where its odds exceed the threshold, else the best span is.

    Probabilities are those that a temperature is fitted for (`calibration.answers`): the softmax of score / temperature
    over the n-best list and "no answer", whose score is lowered by the calibrated threshold whichever `threshold` this
    call decides by, summed over candidates with one text.
    """
    config = config.model_copy(update={"n_best": max(2, config.n_best)})  # a list of one may lack the best span
    ranked = rank_spans(grid, logits, config)
    odds: Floats = np.full(len(grid.tokens.question_ids), -np.inf)
    if has_null:
        nothing = rank_nothing(grid.tokens, logits)
        odds = nothing.scores - ranked.scores[first_of_each(ranked.questions)]
        ranked = with_null(ranked, nothing, config.n_best)
    bounds = [*first_of_each(ranked.questions).tolist(), len(ranked.questions)]
    parts = [ranked.take(np.arange(first, stop)) for first, stop in pairwise(bounds)]
    declines = (odds > (calibration.threshold if threshold is None else threshold)).tolist()
    return [
        list(_answers(grid, part, calibration, declined, is_cut, has_null))
        for part, declined, is_cut in zip(parts, declines, are_cut, strict=True)
    ]


def _answers(
    grid: TextGrid, part: Ranking, calibration: Calibration, declined: bool, is_cut: bool, has_null: bool
) -> Iterator[Placed]:
    found = _merge_texts(grid, part, calibration)
    nothing = min(found.shares[""], 1.0) if has_null else None
    given = "" if declined else next(text for text in found.texts if text)
    at = int(grid.context_at[part.questions[0]])
    for text in sorted(found.texts, key=lambda text: text != given):  # stable: the others stay best first
        place = found.texts[text]
        first, last = part.tokens[place].tolist()
        start, end = (part.bounds[place] - (at if text else 0)).tolist()
        share, window = min(found.shares[text], 1.0), _window(grid, first)
        yield Placed(Answer(text, start, end, share, nothing, float(part.scores[place]), window, is_cut), (first, last))


def _merge_texts(grid: TextGrid, part: Ranking, calibration: Calibration) -> _Candidates:
    is_null = part.bounds[:, 0] == part.bounds[:, 1]
    scores = part.scores - np.where(is_null, calibration.threshold, 0.0)
    weights = np.exp((scores - scores.max()) / calibration.temperature)
    texts: dict[str, int] = {}
    shares: dict[str, float] = {}
    for place, (share, (first, stop)) in enumerate(
        zip((weights / weights.sum()).tolist(), part.bounds.tolist(), strict=True)
    ):
        text = grid.text[first:stop]
        texts.setdefault(text, place)
        shares[text] = shares.get(text, 0.0) + share
    return _Candidates(texts, shares)


def _window(grid: TextGrid, token: int) -> tuple[int, int]:
    """Give the characters of the context that stand in a token's window."""
    window = int(np.searchsorted(grid.tokens.window_at, token, side="right")) - 1
    offsets = grid.tokens.offsets[slice(*grid.tokens.window_at[window : window + 2])]
    inside = offsets[offsets[:, 0] >= 0]
    return int(inside[0, 0]), int(inside[-1, 1])
