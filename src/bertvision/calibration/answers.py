"""A model's answers with how likely it holds them to be, at any null threshold and temperature.

A question's candidates are its n-best spans and "no answer"; the confidence of an answer is the softmax over them of
score / temperature. Candidates with the text of the answer (one span seen by two windows, or a text that stands twice)
count together. The n-best list is cut off, so that spans beyond it have no share, and a confidence is a little too
high; a temperature that was fitted on lists of the same length makes up for it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertvision.errors import DataError
from bertvision.metrics.squad import answer_worths
from bertvision.predictions.prediction import Candidate
from bertvision.tasks.task import Question

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
LEAST = 1e-300  # a probability below it was written as 0, which has no logarithm


@dataclass(frozen=True)
class Answers:
    """Answers to questions whose golds are known; the arrays are in the questions' order."""

    questions: Sequence[Question]
    best_spans: Mapping[str, str]
    null_odds: Mapping[str, float]
    odds: Floats  # [question]
    scores: Floats  # [question, candidate] up to a constant; "no answer" first, -inf fills shorter lists
    is_best: Bools  # [question, candidate] whether it has the text of the best span
    exact: Floats  # [question] what the best span is worth
    f1: Floats
    is_impossible: Bools

    def declined(self, threshold: float) -> Bools:
        """Tell which questions get no answer."""
        return self.odds > threshold

    def worth(self, values: Floats, threshold: float) -> Floats:
        """Give what the answers are worth at a threshold; `values` is `exact` or `f1`."""
        return np.where(self.declined(threshold), self.is_impossible, values)

    def confidence(self, threshold: float, temperature: float) -> Floats:
        """Give the probability of the answer taken: of "no answer" where it declines."""
        scaled = (self.scores - self.scores.max(axis=1, keepdims=True)) / temperature
        weights = np.exp(scaled)
        taken = np.where(self.declined(threshold), weights[:, 0], (weights * self.is_best).sum(axis=1))
        shares: Floats = taken / weights.sum(axis=1)
        return np.minimum(shares, 1.0)


def build_answers(
    questions: Sequence[Question],
    best_spans: Mapping[str, str],
    null_odds: Mapping[str, float],
    candidates: Mapping[str, Sequence[Candidate]],
) -> Answers:
    """Compare answers with the golds; the mappings may hold more questions than these."""
    exact, f1 = answer_worths(questions, best_spans)
    rows = [_scores_of(each.id, best_spans[each.id], null_odds[each.id], candidates[each.id]) for each in questions]
    shape = (len(rows), max(len(row) for row, _ in rows))
    scores, is_best = np.full(shape, -np.inf), np.zeros(shape, np.bool_)
    for place, (row, same) in enumerate(rows):
        scores[place, : len(row)], is_best[place, : len(row)] = row, same
    return Answers(
        questions,
        best_spans,
        null_odds,
        odds=np.array([null_odds[each.id] for each in questions], np.float64),
        scores=scores,
        is_best=is_best,
        exact=np.array(list(exact.values()), np.float64),
        f1=np.array(list(f1.values()), np.float64),
        is_impossible=np.array([each.is_impossible for each in questions]),
    )


def _scores_of(
    question: str, best_span: str, odds: float, candidates: Sequence[Candidate]
) -> tuple[list[float], list[bool]]:
    """Give a question's scores, "no answer" first, and which of them are the best span's.

    Probabilities are used, not logits: they are the same up to a constant, and a joint readout's file has no more.
    A short n-best list may lack the best span or, in other programs' files, "no answer": the odds say where it belongs.
    """
    spans = [each for each in candidates if each.text]
    scores, same = [_log(each) for each in spans], [each.text == best_span for each in spans]
    null = next((_log(each) for each in candidates if not each.text), None)
    best = next((score for score, is_same in zip(scores, same, strict=True) if is_same), None)
    if null is None and best is None:
        raise DataError(f"question {question!r}: its n-best holds neither the best span nor no answer; predict again")
    if best is None:
        assert null is not None
        scores, same = [*scores, null - odds], [*same, True]
    if null is None:
        assert best is not None
        null = best + odds
    return [null, *scores], [False, *same]


def _log(candidate: Candidate) -> float:
    return math.log(max(candidate.probability, LEAST))
