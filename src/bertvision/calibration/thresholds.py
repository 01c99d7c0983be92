"""The null threshold: how good the answers are at each, and the best one on questions that are kept for choosing it."""

import numpy as np

from bertvision.calibration.answers import Answers
from bertvision.metrics.squad import Scores, score_squad2


def tune_threshold(answers: Answers) -> float:
    """Give the threshold with the best F1: the lowest of them, by the official script's sweep over all odds."""
    order = np.argsort(answers.odds, kind="stable")
    is_given = np.array([bool(answers.best_spans[each.id]) for each in answers.questions])
    gains = np.where(answers.is_impossible, -1.0 * is_given, answers.f1)[order]
    totals = np.cumsum([float(answers.is_impossible.sum()), *gains])  # one by one, as the official script adds
    best = int(totals.argmax())
    # The official script says 0 where abstaining always is best; what it means lies below all odds.
    return float(answers.odds[order[best - 1]]) if best else float(np.nextafter(answers.odds.min(), -np.inf))


def scores_at(answers: Answers, threshold: float) -> Scores:
    """Give the official scores at a threshold, and at the best one."""
    return score_squad2(answers.questions, answers.best_spans, answers.null_odds, threshold)


def threshold_curve(answers: Answers, points: int) -> list[tuple[float, float, float]]:
    """Give threshold, exact and F1 in percent, at thresholds that are quantiles of the odds."""
    thresholds = np.unique(np.quantile(answers.odds, np.linspace(0, 1, points), method="inverted_cdf"))
    return [
        (
            float(threshold),
            100.0 * float(answers.worth(answers.exact, threshold).mean()),
            100.0 * float(answers.worth(answers.f1, threshold).mean()),
        )
        for threshold in thresholds[np.isfinite(thresholds)].tolist()
    ]
