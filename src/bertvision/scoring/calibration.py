"""Answers, and others that were kept for choosing -> scores and curves of a record."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bertvision.data.example import Question
from bertvision.errors import DataError
from bertvision.predictions.prediction import Prediction
from bertvision.records import Curves
from bertvision.scoring.bootstrap import binomial_tail
from bertvision.scoring.confidence import Answers, Bools, Floats, build_answers, fit_temperature
from bertvision.scoring.squad import Scores, score_squad2

BINS = 15
POINTS = 101  # of a curve: every percent
DIGITS = 6  # of a curve's numbers, so that records stay small
RISK = 0.1  # that a threshold which was chosen for its accuracy has less of it on other questions
# That a run fits a threshold to. Fitted to 25, 50, 100 and 200 drawn questions, it lost more than a point of F1 against
# the model's own in 17, 10, 2 and 2% of draws (docs/log.md).
LEAST_QUESTIONS = 100
COVERAGES = np.linspace(0.05, 1.0, 20)  # shares of questions that are answered at the thresholds to choose from


Predicted = tuple[Sequence[Question], Sequence[Prediction]]


class Decision(NamedTuple):
    """When to abstain, and how sure to be."""

    threshold: float = 0.0
    temperature: float = 1.0


class Bin(NamedTuple):
    """Answers of about the same confidence."""

    place: int  # from 0
    confidence: float  # their mean
    right: float  # share of them
    size: int


class Judgement(NamedTuple):
    """How good answers and their confidences are."""

    exact: float  # in percent
    f1: float
    answered: float  # share of the questions that are given an answer, in percent
    right: float  # share of these answers that are exactly right, in percent; 100 where none is given
    bins: list[Bin]
    risks: Floats  # by coverage
    brier: float  # mean squared distance of the confidence from having been exactly right

    @property
    def error(self) -> float:
        """Return the expected calibration error."""
        return calibration_error(self.bins)

    @property
    def area(self) -> float:
        """Return the area under the risk-coverage curve: the mean risk over all coverages; 0 is best."""
        return float(self.risks.mean())


def fit_decision(held_out: Answers, min_accuracy: float | None = None) -> Decision:
    """Choose the threshold with the best F1, or that is right so often; then the temperature that fits at it."""
    threshold = tune_threshold(held_out) if min_accuracy is None else threshold_of_accuracy(held_out, min_accuracy)
    return Decision(threshold, fit_temperature(held_out, threshold))


def held_out_decision(held_out: Answers) -> Decision | None:
    """Choose threshold and temperature by held-out questions; None: these are too few, and a model keeps its own."""
    return fit_decision(held_out) if len(held_out.questions) >= LEAST_QUESTIONS else None


def score_calibration(dev: Predicted, held_out: Predicted | None, threshold: float) -> tuple[Scores, Curves]:
    """Return what a record holds on thresholds and probabilities of predictions whose task has "no answer"."""
    decision = held_out_decision(answers_of(*held_out)) if held_out is not None else None
    return calibration_scores(answers_of(*dev), Decision(threshold), decision)


def calibration_scores(answers: Answers, before: Decision, after: Decision | None) -> tuple[Scores, Curves]:
    """Return a record's scores and curves; `after` was fitted on other questions, if at all."""
    plain = judge([answers], [before])
    scores = {"ece": plain.error, "risk_coverage_area": plain.area}
    bins = {"before": plain.bins}
    if after is not None:
        fitted = judge([answers], [after])
        bins["after"] = fitted.bins
        scores |= _tuned_scores(answers, after) | {"ece_calibrated": fitted.error}
    curves = Curves(
        threshold=[(_round(odds), _round(exact), _round(f1)) for odds, exact, f1 in threshold_curve(answers, POINTS)],
        reliability={
            name: [(_round(each.confidence), _round(each.right), each.size) for each in of_name]
            for name, of_name in bins.items()
        },
        risk_coverage=[(_round(share), _round(risk)) for share, risk in risk_coverage_curve(plain.risks, POINTS)],
    )
    return scores, curves


def judge(parts: Sequence[Answers], decisions: Sequence[Decision]) -> Judgement:
    """Judge answers, each part by a decision of its own, all together."""
    judged = [
        (
            part.confidence(*decision),
            part.worth(part.exact, decision.threshold),
            part.worth(part.f1, decision.threshold),
            ~part.abstains(decision.threshold),
        )
        for part, decision in zip(parts, decisions, strict=True)
    ]
    confidence, exact, f1, is_given = map(np.concatenate, zip(*judged, strict=True))
    return Judgement(
        exact=100.0 * float(exact.mean()),
        f1=100.0 * float(f1.mean()),
        answered=100.0 * float(is_given.mean()),
        right=100.0 * float(exact[is_given].mean()) if is_given.any() else 100.0,
        bins=reliability_bins(confidence, exact > 0),
        risks=risks_by_coverage(confidence, exact > 0),
        brier=float(np.square(confidence - (exact > 0)).mean()),
    )


def tune_threshold(answers: Answers) -> float:
    """Return the threshold with the best F1: the lowest of them, by the official script's sweep over all odds."""
    scores = scores_at(answers, 0.0)
    # The official script says 0 where abstaining always is best; what it means lies below all odds.
    if scores["best_f1"] <= 100.0 * int(answers.is_impossible.sum()) / len(answers.questions):
        return float(np.nextafter(answers.odds.min(), -np.inf))
    return scores["best_f1_thresh"]


def threshold_of_accuracy(answers: Answers, accuracy: float) -> float:
    """Return the highest of some thresholds at which answers that are given are exactly right that often.

    It holds for other questions of the same kind too, with a probability of 1 - RISK over the choice of these: by a
    binomial test of each threshold, at RISK shared among all of them (Learn then Test, Angelopoulos et al. 2021).
    """
    wrong = np.cumsum(answers.exact[np.argsort(answers.odds, kind="stable")] == 0)
    odds = np.sort(answers.odds)
    given = np.searchsorted(odds, np.quantile(odds, COVERAGES, method="inverted_cdf"), side="right")
    for count in given[::-1].tolist():
        if binomial_tail(int(wrong[count - 1]), count, 1 - accuracy) <= RISK / len(COVERAGES):
            return float(odds[count - 1])
    share, count = max((1 - wrong[count - 1] / count, count) for count in given.tolist())
    few = ", too few to be sure" if share >= accuracy else ""
    raise DataError(
        f"at no threshold these {len(odds):,} questions show that {100 * accuracy:.4g}% of the answers are right: at "
        f"best {share:.0%} of {count:,} answers{few}; ask for less, or give more questions"
    )


def scores_at(answers: Answers, threshold: float) -> Scores:
    """Return the official scores at a threshold, and at the best one."""
    return score_squad2(answers.questions, answers.best_spans, answers.null_odds, threshold)


def threshold_curve(answers: Answers, points: int) -> list[tuple[float, float, float]]:
    """Return threshold, exact and F1 in percent, at thresholds that are quantiles of the odds."""
    thresholds = np.unique(np.quantile(answers.odds, np.linspace(0, 1, points), method="inverted_cdf"))
    return [
        (
            float(threshold),
            100.0 * float(answers.worth(answers.exact, threshold).mean()),
            100.0 * float(answers.worth(answers.f1, threshold).mean()),
        )
        for threshold in thresholds[np.isfinite(thresholds)].tolist()
    ]


def reliability_bins(confidence: Floats, is_right: Bools) -> list[Bin]:
    """Sort answers into bins of equal width, of which empty ones are left out; a bound belongs to the bin above it."""
    places = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    groups = {place: places == place for place in np.unique(places).tolist()}
    return [
        Bin(place, float(confidence[group].mean()), float(is_right[group].mean()), int(group.sum()))
        for place, group in groups.items()
    ]


def calibration_error(bins: list[Bin]) -> float:
    """Return the expected calibration error: the bins' distances from the truth, weighed by their counts."""
    total = sum(each.size for each in bins)
    return sum(each.size * abs(each.right - each.confidence) for each in bins) / total


def risks_by_coverage(confidence: Floats, is_right: Bools) -> Floats:
    """Return the share that is wrong among the 1, 2, ... n most confident answers.

    Where confidences tie, every order is as good as another: each answer counts with the share of its equals.
    """
    _, group, counts = np.unique(-confidence, return_inverse=True, return_counts=True)
    wrong = np.bincount(group, weights=~is_right) / counts
    return np.cumsum(wrong[np.sort(group)]) / np.arange(1, len(confidence) + 1)


def risk_coverage_curve(risks: Floats, points: int) -> list[tuple[float, float]]:
    """Return coverage and risk at coverages that are evenly spread."""
    places = np.unique(np.linspace(0, len(risks) - 1, points).round().astype(np.int64)).tolist()
    return [((place + 1) / len(risks), float(risks[place])) for place in places]


def answers_of(questions: Sequence[Question], predictions: Sequence[Prediction]) -> Answers:
    """Compare the official decoder's predictions with the golds."""
    spans = {each.question_id: each.best_span for each in predictions}
    odds = {each.question_id: each.null_odds for each in predictions if each.null_odds is not None}
    return build_answers(questions, spans, odds, {each.question_id: each.candidates for each in predictions})


def _tuned_scores(answers: Answers, decision: Decision) -> Scores:
    official = scores_at(answers, decision.threshold)
    names = [name for name in ("exact", "f1", "HasAns_f1", "NoAns_f1") if name in official]
    return {
        "tuned_threshold": decision.threshold,
        **{f"tuned_{name}": official[name] for name in names},
        "tuned_below_best_f1": official["best_f1"] - official["f1"],
        "temperature": decision.temperature,
    }


def _round(number: float) -> float:
    return round(number, DIGITS)
