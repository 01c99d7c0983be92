"""Logits of rows -> a class, labels, a number, the best ending, or whether a question has an answer; numpy alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]
Probabilities = npt.NDArray[np.float64]
NO_ANSWER = 1  # the class of a question, or of a window, that has none


@dataclass(frozen=True, slots=True)
class RowPrediction:
    """What a model says of one row: a class or an ending by its number, a 0 or 1 for each label, or a number."""

    id: str
    label: int | float | tuple[int, ...]
    probabilities: tuple[float, ...] = ()  # of each class, label or ending; a number has none
    paper_label: int | None = None  # of answerability: the class by the 2020 system's rule


def predict_classes(ids: Sequence[str], logits: Logits) -> list[RowPrediction]:
    """Take each row's likeliest class; logits are [row, class]."""
    best, probabilities = logits.argmax(axis=1).tolist(), softmax(logits).tolist()
    return [RowPrediction(*each) for each in zip(ids, best, map(tuple, probabilities), strict=True)]


def predict_label_sets(ids: Sequence[str], logits: Logits, threshold: float = 0.5) -> list[RowPrediction]:
    """Take every label whose probability exceeds the threshold; logits are [row, label]."""
    probabilities = 1 / (1 + np.exp(-np.clip(logits.astype(np.float64), -500, 500)))
    taken = (probabilities > threshold).astype(int).tolist()
    found = zip(ids, map(tuple, taken), map(tuple, probabilities.tolist()), strict=True)
    return [RowPrediction(*each) for each in found]


def predict_numbers(ids: Sequence[str], logits: Logits) -> list[RowPrediction]:
    """Take the logits for what they are; they are [row, 1]."""
    return [RowPrediction(*each) for each in zip(ids, logits[:, 0].tolist(), strict=True)]


def predict_choices(ids: Sequence[str], logits: Logits, endings: int) -> list[RowPrediction]:
    """Take each row's best ending; logits are [window, 1], a row's endings one after another."""
    return predict_classes(ids, logits.reshape(-1, endings))


def predict_answerable(ids: Sequence[str], question_of: npt.NDArray[Any], logits: Logits) -> list[RowPrediction]:
    """Tell of each question whether it has no answer: it has none only if all its windows say so.

    Logits are [window, 2], `question_of` is [window]. By the 2020 system's rule (`paper_label`) one such window is
    enough.
    """
    no_answer = softmax(logits)[:, NO_ANSWER]
    says_none = logits.argmax(axis=1)
    lowest = np.full(len(ids), np.inf)
    all_say, any_says = np.ones(len(ids), dtype=np.int64), np.zeros(len(ids), dtype=np.int64)
    np.minimum.at(lowest, question_of, no_answer)
    np.minimum.at(all_say, question_of, says_none)
    np.maximum.at(any_says, question_of, says_none)
    pairs = [(1 - each, each) for each in lowest.tolist()]
    found = zip(ids, all_say.tolist(), pairs, any_says.tolist(), strict=True)
    return [RowPrediction(*each) for each in found]


def softmax(logits: Logits) -> Probabilities:
    """Give each row's probabilities."""
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    shares: Probabilities = powers / powers.sum(axis=1, keepdims=True)
    return shares
