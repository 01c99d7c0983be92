"""The null threshold: how good the answers are at each, and the best one on questions that are kept for choosing it."""

import numpy as np

from bertvision.calibration.answers import Answers
from bertvision.metrics.squad import Scores, score_squad2


def tune_threshold(answers: Answers) -> float:
    """Give the threshold with the best F1: the lowest of them, by the official script's sweep over all odds."""
    scores = scores_at(answers, 0.0)
    # The official script says 0 where declining everything is best; what it means lies below all odds.
    if scores["best_f1"] <= 100.0 * int(answers.is_impossible.sum()) / len(answers.questions):
        return float(np.nextafter(answers.odds.min(), -np.inf))
    return scores["best_f1_thresh"]


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
