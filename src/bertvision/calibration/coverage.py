"""How many answers are wrong when the least confident ones are withheld."""

import numpy as np

from bertvision.calibration.answers import Bools, Floats


def risks_by_coverage(confidence: Floats, is_right: Bools) -> Floats:
    """Give the share that is wrong among the 1, 2, ... n most confident answers.

    Where confidences tie, every order is as good as another: each answer counts with the share of its equals.
    """
    _, group, counts = np.unique(-confidence, return_inverse=True, return_counts=True)
    wrong = np.bincount(group, weights=~is_right) / counts
    return np.cumsum(wrong[np.sort(group)]) / np.arange(1, len(confidence) + 1)


def risk_coverage_curve(risks: Floats, points: int) -> list[tuple[float, float]]:
    """Give coverage and risk at coverages that are evenly spread."""
    places = np.unique(np.linspace(0, len(risks) - 1, points).round().astype(np.int64)).tolist()
    return [((place + 1) / len(risks), float(risks[place])) for place in places]
