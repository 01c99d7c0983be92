"""The second most likely answers as the 2020 paper found them: start and end decoded apart, masked, decoded again."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from bertvision.data.example import Question
from bertvision.errors import DataError
from bertvision.predictions.ensemble import LOGITS
from bertvision.predictions.logits import Logits, TokenGrid, load_logits
from bertvision.scoring.answers import SecondAnswers, Texts, score_seconds
from studies.paper_scores import Pieces, decode_pieces

MASKED = -1000.0  # what the papers put in place of the highest logits (SPEC 10.5)
OUTSIDE = "[outside]"  # stands for the pieces of a span outside its context, so that it equals no gold


def score_paper_seconds(questions: Sequence[Question], folder: Path) -> SecondAnswers | None:
    """Score the second answers of a prediction folder; None where it has no logits, or pairs are scored.

    An end before its start is no answer, which is why some questions are right twice.
    """
    if not (folder / LOGITS).exists():
        return None
    grid, logits = load_logits(folder / LOGITS)
    if logits.shape[1] > 2:  # a joint readout scores pairs: its starts alone mean nothing
        return None
    firsts, seconds = paper_answers(grid, logits, {each.id: each.context for each in questions})
    return score_seconds(questions, firsts, seconds)


def paper_answers(grid: TokenGrid, logits: Logits, contexts: Mapping[str, str]) -> tuple[Texts, Texts]:
    """Return the first and the second answers the papers' way: decoded, masked at the peaks, decoded again."""
    return _decode(grid, logits, contexts), _decode(grid, mask_peaks(grid, logits), contexts)


def mask_peaks(grid: TokenGrid, logits: Logits) -> Logits:
    """Put -1000 at every window's highest start and highest end."""
    masked = logits[:, :2].copy()
    for first, stop in pairwise(grid.window_at.tolist()):
        masked[first + masked[first:stop].argmax(axis=0), [0, 1]] = MASKED
    return masked


def _decode(grid: TokenGrid, logits: Logits, contexts: Mapping[str, str]) -> Texts:
    numbers = np.arange(len(logits), dtype=np.int32)  # tokens themselves in place of word pieces
    spans = decode_pieces(grid, numbers, logits)
    return {
        question: _text(grid, span, question, contexts[question])
        for question, span in zip(grid.question_ids, spans, strict=True)
    }


def _text(grid: TokenGrid, span: Pieces, question: str, context: str) -> str:
    if not span:
        return ""
    offsets = grid.offsets[span[0] : span[-1] + 1]
    inside = offsets[offsets[:, 0] >= 0]
    first, stop = (int(inside[0, 0]), int(inside[-1, 1])) if len(inside) else (0, 0)
    if stop > len(context):
        raise DataError(f"question {question!r}: its windows are of another context; give the file predicted for")
    return context[first:stop] if len(inside) == len(offsets) else f"{OUTSIDE} {context[first:stop]}"
