"""Logits of tokens -> a tag for each word; numpy alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bertvision.tasks.task import Sentence


@dataclass(frozen=True, slots=True)
class TagPrediction:
    """A tag for each word of one sentence."""

    id: str
    tags: tuple[str, ...]


def predict_tags(
    sentences: Sequence[Sentence],
    tags: Sequence[str],
    sentence_of: npt.NDArray[Any],
    word_of: npt.NDArray[Any],
    logits: npt.NDArray[np.float32],
) -> list[TagPrediction]:
    """Take for each word the best tag of the token that speaks for it; a word without such a token gets O.

    All windows' tokens lie one after another: logits are [token, tag], `sentence_of` [token] is the sentence and
    `word_of` [token] the word of it that a token speaks for, or -1.
    """
    found = [["O"] * len(sentence.words) for sentence in sentences]
    speaking = np.flatnonzero(word_of >= 0)
    best = logits[speaking].argmax(axis=1)
    for sentence, word, tag in zip(
        sentence_of[speaking].tolist(), word_of[speaking].tolist(), best.tolist(), strict=True
    ):
        found[sentence][word] = tags[tag]
    return [TagPrediction(sentence.id, tuple(each)) for sentence, each in zip(sentences, found, strict=True)]
