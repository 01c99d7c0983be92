"""One number that makes confidences honest: scores are divided by it before the softmax."""

import math
from collections.abc import Callable

import numpy as np

from bertvision.calibration.answers import Answers, Bools, Floats

LOWEST, HIGHEST = 0.05, 20.0  # with few questions, all of them right, the best temperature would be 0
STEPS = 24  # of a first look over the whole range: the loss may have more than one valley
PRECISION = 1e-4  # of the temperature's logarithm
GOLDEN = (math.sqrt(5) - 1) / 2
SURE = 1e-12  # a confidence is kept this far from 0 and 1: one wrong answer would cost infinitely much


def fit_temperature(answers: Answers, threshold: float) -> float:
    """Give the temperature with the lowest log loss of "the answer is exactly right", answers taken at a threshold."""
    is_right = answers.worth(answers.exact, threshold) > 0

    def loss(log_temperature: float) -> float:
        return log_loss(answers.confidence(threshold, math.exp(log_temperature)), is_right)

    steps = np.linspace(math.log(LOWEST), math.log(HIGHEST), STEPS + 1).tolist()
    best = min(range(len(steps)), key=lambda place: loss(steps[place]))
    return math.exp(_lowest_point(loss, steps[max(best - 1, 0)], steps[min(best + 1, STEPS)]))


def log_loss(confidence: Floats, is_right: Bools) -> float:
    """Give the mean negative log-likelihood of having been right or wrong."""
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
