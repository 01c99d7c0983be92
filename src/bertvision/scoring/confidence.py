"""A model's answers with how likely it holds them to be, at any null threshold and temperature, and the best of these.

A question's candidates are its n-best spans and "no answer", whose score is lowered by the threshold; the confidence of
an answer is the softmax over them of score / temperature. Candidates with the text of the answer (one span seen by two
windows, or a text that stands twice) count together. The n-best list is cut off, so that spans beyond it have no share,
and a confidence is a little too high; a temperature that was fitted on lists of the same length makes up for it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertvision.data.example import Question
from bertvision.errors import DataError
from bertvision.predictions.prediction import Candidate
from bertvision.scoring.squad import answer_worths

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
LOWEST, HIGHEST = 0.05, 20.0  # with few questions, all of them right, the best temperature would be 0
STEPS = 24  # of a first look over the whole range: the loss may have more than one valley
PRECISION = 1e-4  # of the temperature's logarithm
GOLDEN = (math.sqrt(5) - 1) / 2
SURE = 1e-12  # a confidence is kept this far from 0 and 1: one wrong answer would cost infinitely much
LEAST = 1e-300  # a probability below it was written as 0, which has no logarithm


@dataclass(frozen=True)
class Answers:
    """Answers to questions whose golds are known; the arrays are in the questions' order."""

    questions: Sequence[Question]
    best_spans: Mapping[str, str]
    null_odds: Mapping[str, float]
    odds: Floats  # [question]
    scores: Floats  # [question, candidate] up to a constant; -inf fills shorter lists
    is_null: Bools  # [question, candidate] whether it is "no answer"
    is_best: Bools  # [question, candidate] whether it has the text of the best span
    exact: Floats  # [question] what the best span is worth
    f1: Floats
    is_impossible: Bools

    def take(self, places: npt.NDArray[np.int64]) -> "Answers":
        """Return the answers to some of the questions."""
        arrays = ("odds", "scores", "is_null", "is_best", "exact", "f1", "is_impossible")
        kept = {name: getattr(self, name)[places] for name in arrays}
        questions = [self.questions[place] for place in places.tolist()]
        return Answers(questions, self.best_spans, self.null_odds, **kept)

    def abstains(self, threshold: float) -> Bools:
        """Return which questions get no answer."""
        return self.odds > threshold

    def worth(self, values: Floats, threshold: float) -> Floats:
        """Return what the answers are worth at a threshold; `values` is `exact` or `f1`."""
        return np.where(self.abstains(threshold), self.is_impossible, values)

    def confidence(self, threshold: float, temperature: float) -> Floats:
        """Return the probability of the answer taken: of "no answer" where it abstains.

        "No answer" scores less by the threshold, so that it is as likely as the best span where the decision turns.
        """
        taken = np.where(self.abstains(threshold)[:, None], self.is_null, self.is_best)
        return self.shares(taken, threshold, temperature)

    def shares(self, taken: Bools, threshold: float, temperature: float) -> Floats:
        """Return the probability of some candidates of each question together, such as `is_null` or `is_best`."""
        scores = self.scores - np.where(self.is_null, threshold, 0.0)
        weights = np.exp((scores - scores.max(axis=1, keepdims=True)) / temperature)
        shares: Floats = (weights * taken).sum(axis=1) / weights.sum(axis=1)
        return np.minimum(shares, 1.0)


def build_answers(
    questions: Sequence[Question],
    best_spans: Mapping[str, str],
    null_odds: Mapping[str, float],
    candidates: Mapping[str, Sequence[Candidate]],
) -> Answers:
    """Compare answers with the golds; the mappings may hold more questions than these."""
    exact, f1 = answer_worths(questions, best_spans)
    odds = np.array([null_odds[each.id] for each in questions], np.float64)
    listed = [candidates[each.id] for each in questions]
    shape = (len(listed), max(map(len, listed)))
    scores, is_null, is_best = np.full(shape, -np.inf), np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    for place, (question, row) in enumerate(zip(questions, listed, strict=True)):
        texts, best, size = [each.text for each in row], best_spans[question.id], len(row)
        # Probabilities, not logits: the same up to a constant, and the file of a joint readout has no more.
        scores[place, :size] = [each.probability for each in row]
        is_null[place, :size], is_best[place, :size] = [not text for text in texts], [text == best for text in texts]
        scores[place, :size] = np.log(np.maximum(scores[place, :size], LEAST))
    return Answers(
        questions,
        best_spans,
        null_odds,
        odds,
        *_with_lacking(questions, odds, scores, is_null, is_best),
        exact=np.array(list(exact.values()), np.float64),
        f1=np.array(list(f1.values()), np.float64),
        is_impossible=np.array([each.is_impossible for each in questions]),
    )


def _with_lacking(
    questions: Sequence[Question], odds: Floats, scores: Floats, is_null: Bools, is_best: Bools
) -> tuple[Floats, Bools, Bools]:
    """Add what a short n-best list may lack, the best span or (in other programs' files) "no answer", by the odds."""
    lacks_null, lacks_best = ~is_null.any(axis=1), ~is_best.any(axis=1)
    for place in np.flatnonzero(lacks_null & lacks_best).tolist():
        raise DataError(
            f"question {questions[place].id!r}: its n-best holds neither the best span nor no answer; predict again"
        )
    null, best = (scores.max(axis=1, initial=-np.inf, where=each) for each in (is_null, is_best))
    more = np.stack([np.where(lacks_null, best + odds, -np.inf), np.where(lacks_best, null - odds, -np.inf)], axis=1)
    is_first = np.broadcast_to(np.array([True, False]), more.shape)
    return np.hstack([scores, more]), np.hstack([is_null, is_first]), np.hstack([is_best, ~is_first])


def fit_temperature(answers: Answers, threshold: float) -> float:
    """Return the temperature with the lowest log loss of "the answer is exactly right", taken at a threshold."""
    is_right = answers.worth(answers.exact, threshold) > 0

    def loss(log_temperature: float) -> float:
        return log_loss(answers.confidence(threshold, math.exp(log_temperature)), is_right)

    steps = np.linspace(math.log(LOWEST), math.log(HIGHEST), STEPS + 1).tolist()
    best = min(range(len(steps)), key=lambda place: loss(steps[place]))
    return math.exp(_lowest_point(loss, steps[max(best - 1, 0)], steps[min(best + 1, STEPS)]))


def log_loss(confidence: Floats, is_right: Bools) -> float:
    """Return the mean negative log-likelihood of having been right or wrong."""
    sure = np.clip(confidence, SURE, 1 - SURE)
    return float(-np.log(np.where(is_right, sure, 1 - sure)).mean())


def _lowest_point(function: Callable[[float], float], low: float, high: float) -> float:
    """Search by golden sections."""
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > PRECISION:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = function(right)
    return (low + high) / 2
