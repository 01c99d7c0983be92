"""Scores as the systems of 2020 and 2021 computed them, beside the official ones: `extra_scores` of a run.

That of 2020 read logits as word pieces (SPEC 4.2): start and end apart, the surest window. It gives no answer where
the end stands before the start, may answer with the question or a special token, and lets a sure "no answer" of one
window beat another's answer. That of 2021 has the official scores, but the highest "no answer" of a question's
windows counts (SPEC 8.2). They are here so that the papers' tables can be compared with.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.data.example import Question
from bertvision.errors import EncoderError
from bertvision.kinds.kind import Answering, ExtraScore
from bertvision.kinds.spans import Spans
from bertvision.predictions.ensemble import How
from bertvision.predictions.logits import Logits, TokenGrid
from bertvision.predictions.spans import decode_spans
from bertvision.scoring.squad import Scores, score_predictions
from bertvision.windows.tokens import Int32s, Tokenizer

Pieces = tuple[int, ...]  # a text as word pieces, by their numbers in the vocabulary
PaperScore = Literal["paper-v1", "paper-v2"]


class PaperGold(NamedTuple):
    """What the 2020 system's scores need beside logits, the same for every model of an encoder."""

    pieces: Int32s  # [token] of all windows
    golds: list[list[Pieces]]  # of every question


class PaperV1:
    """The scores of the 2020 system on dev, as `extra_scores` of a run."""

    def __init__(self) -> None:
        self._golds: tuple[Answering, PaperGold] | None = None  # of the last split, the same for all its models

    def __call__(self, answering: Answering, logits: Logits, how: How | None) -> Scores:
        """Return `paper_v1_exact`, `paper_v1_f1` and EM by type of question; nothing where they cannot be computed."""
        # A joint readout scores pairs: its starts alone mean nothing.
        if answering.part or not isinstance(answering.info.kind, Spans) or logits.shape[1] > 2:
            return {}
        gold = self._gold(answering)
        answers = decode_pieces(answering.layout.tokens, gold.pieces, logits, are_log_probabilities=how == "max")
        return score_pieces(gold.golds, answers)

    def _gold(self, answering: Answering) -> PaperGold:
        if self._golds is None or self._golds[0] is not answering:
            self._golds = (answering, paper_gold(answering))
        return self._golds[1]


def paper_v2(answering: Answering, logits: Logits, how: How | None) -> Scores:
    """Return `paper_v2_exact` and `paper_v2_f1` of dev, where questions may have no answer."""
    if answering.part or not isinstance(answering.info.kind, Spans) or not answering.info.kind.has_null:
        return {}
    questions = answering.split.examples
    predictions = decode_spans(answering.layout, logits, answering.config, has_null=True, of_windows="high")
    scores = score_predictions(questions, predictions, answering.config.null_threshold)
    return {f"paper_v2_{name}": scores[name] for name in ("exact", "f1")}


def extra_scores(names: Sequence[PaperScore]) -> dict[str, ExtraScore]:
    """Return the scores of these names, for `bertvision.run`."""
    known: dict[PaperScore, ExtraScore] = {"paper-v1": PaperV1(), "paper-v2": paper_v2}
    return {name: known[name] for name in names}


def paper_gold(answering: Answering) -> PaperGold:
    """Look up the word pieces of windows and golds."""
    pieces = np.concatenate([window.ids for window in answering.windows])
    assert answering.tokenizer is not None
    return PaperGold(pieces, gold_pieces(answering.split.examples, answering.tokenizer))


def score_pieces(golds: Sequence[Sequence[Pieces]], answers: Sequence[Pieces]) -> Scores:
    """Return the scores of the 2020 system in percent (SPEC 4.2): word pieces as they are, not normalised.

    Each question counts by its best gold; an unanswerable one has an empty gold. EM is also that of either type of
    question (SPEC 10.5), where there are any.
    """
    right = {"paper_v1_HasAns_exact": [0, 0], "paper_v1_NoAns_exact": [0, 0]}
    f1 = 0.0
    for wanted, answer in zip(golds, answers, strict=True):
        counts = right["paper_v1_NoAns_exact" if () in wanted else "paper_v1_HasAns_exact"]
        counts[0] += answer in wanted
        counts[1] += 1
        f1 += max(piece_f1(gold, answer) for gold in wanted)
    exact = sum(count for count, _ in right.values())
    by_type = {name: 100.0 * count / questions for name, (count, questions) in right.items() if questions}
    return {"paper_v1_exact": 100.0 * exact / len(golds), "paper_v1_f1": 100.0 * f1 / len(golds), **by_type}


def piece_f1(gold: Pieces, answer: Pieces) -> float:
    """Return the F1 of two bags of word pieces; where one is empty, whether both are."""
    if not gold or not answer:
        return float(gold == answer)
    return 2 * (Counter(gold) & Counter(answer)).total() / (len(gold) + len(answer))


class Peaks(NamedTuple):
    """The highest start, or the highest end, of every window."""

    tokens: npt.NDArray[np.int64]  # of the grid; the first of equals
    log_probabilities: npt.NDArray[np.float64]


def decode_pieces(
    grid: TokenGrid, pieces: npt.NDArray[np.int32], logits: Logits, *, are_log_probabilities: bool = False
) -> list[Pieces]:
    """Answer every question of the grid, in its order, with some of its tokens' word pieces; none are "no answer".

    The papers took an ensemble's largest probabilities as they were, although their sum exceeds one (SPEC 4.4): such
    logits `are_log_probabilities`, all others go through a softmax.
    """
    starts, ends = (_peaks(grid, logits[:, column], are_log_probabilities) for column in (0, 1))
    chosen = _surest_windows(grid, starts.log_probabilities + ends.log_probabilities)
    first, last = starts.tokens[chosen], ends.tokens[chosen]
    # An end at a window's first token leaves nothing: that token alone stands for "no answer".
    stop = np.where(last == grid.window_at[chosen], first, last + 1)
    return [tuple(pieces[one:other].tolist()) for one, other in zip(first.tolist(), stop.tolist(), strict=True)]


def _peaks(grid: TokenGrid, scores: npt.NDArray[np.float32], are_log_probabilities: bool) -> Peaks:
    at, lengths = grid.window_at[:-1], np.diff(grid.window_at)
    highest = np.maximum.reduceat(scores, at)
    everywhere = np.repeat(highest, lengths)
    peaks = np.flatnonzero(scores == everywhere)
    tokens = peaks[np.searchsorted(peaks, at)]
    if are_log_probabilities:
        return Peaks(tokens, highest.astype(np.float64))
    totals = np.add.reduceat(np.exp(np.subtract(scores, everywhere, dtype=np.float64)), at)
    return Peaks(tokens, -np.log(totals))


def _surest_windows(grid: TokenGrid, sureness: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return every question's window of the highest score, the first of equals."""
    order = np.lexsort((-sureness, grid.question_of))
    surest: npt.NDArray[np.int64] = order[np.flatnonzero(np.diff(grid.question_of, prepend=-1))]
    return surest


def gold_pieces(questions: Sequence[Question], tokenizer: Tokenizer) -> list[list[Pieces]]:
    """Tokenise every question's gold answers by themselves; a question without any has an empty one."""
    _check_pieces(tokenizer)
    texts = list(dict.fromkeys(answer.text for question in questions for answer in question.answers))
    pieces = dict(zip(texts, _pieces_of(tokenizer, texts), strict=True))
    golds = [[pieces[answer.text] for answer in question.answers] for question in questions]
    return [[gold for gold in each if gold] or [()] for each in golds]


def _check_pieces(tokenizer: Tokenizer) -> None:
    """Refuse byte-level tokenizers: the blank before a word is part of its piece, so no gold would equal an answer."""
    alone, inside = _pieces_of(tokenizer, ["b", "a b"])
    if inside[-len(alone) :] != alone:
        raise EncoderError(
            "this encoder's tokenizer cuts a word differently at the start of a text, so that gold answers have other "
            "pieces than contexts; leave the study's extra_scores empty"
        )


def _pieces_of(tokenizer: Tokenizer, texts: list[str]) -> list[Pieces]:
    if not texts:
        return []
    return [tuple(ids) for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]]
