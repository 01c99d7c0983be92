"""Rows of tokens -> what the encoder sees of them, and what it is to predict."""

from typing import NamedTuple

import numpy as np

from bertvision.pretraining.config import MaskingConfig
from bertvision.pretraining.corpus import Int64s, Vocabulary
from bertvision.pretraining.rows import TextRows


class PredictedTokens(NamedTuple):
    """What the encoder sees, and which tokens it predicts where."""

    ids: Int64s  # that it sees, of all tokens
    places: Int64s  # whose states predict
    labels: Int64s  # the tokens that they are to predict

    def part(self, tokens: Int64s) -> "PredictedTokens":
        """Return what is seen and predicted at some tokens, which then lie one behind the other."""
        places = np.full(len(self.ids), -1)
        places[tokens] = np.arange(len(tokens))
        is_in = places[self.places] >= 0
        return PredictedTokens(self.ids[tokens], places[self.places][is_in], self.labels[is_in])


def mask_tokens(
    rows: TextRows, config: MaskingConfig, vocabulary: Vocabulary, random: np.random.Generator, most: int | None = None
) -> PredictedTokens:
    """Choose a share of every row's tokens, at least one and never a special one, and replace most of them.

    At most `most` of all rows are chosen, where a batch has room for no more.
    """
    places = _choose(rows, config, vocabulary, random)[:most]
    drawn, ids = random.random(len(places)), rows.ids.copy()
    ids[places[drawn < config.mask]] = vocabulary.id_of("[MASK]")
    at_random = places[(drawn >= config.mask) & (drawn < config.mask + config.random)]
    ids[at_random] = random.choice(vocabulary.ordinary, len(at_random))
    return PredictedTokens(ids, places, rows.ids[places])


def predict_next(rows: TextRows) -> PredictedTokens:
    """Let every token predict the next one of its row, unless that is a special one."""
    places = np.flatnonzero(~rows.is_special) - 1  # a row begins with a special token
    return PredictedTokens(rows.ids, places, rows.ids[places + 1])


def _choose(rows: TextRows, config: MaskingConfig, vocabulary: Vocabulary, random: np.random.Generator) -> Int64s:
    """Return the places to be predicted: of every row those of the smallest of numbers that are drawn for its words."""
    numbers, words = rows.numbers, _words(rows, vocabulary, config)
    drawn = random.random(int(words[-1]) + 1)[words]
    # Rows one after the other, special tokens at their ends; what has one number (a word) stays together.
    keys = numbers + np.where(rows.is_special, 0.75, drawn / 2)
    order = np.argsort(keys, kind="stable" if config.whole_words else None)
    ranks = np.arange(len(order)) - rows.starts[numbers[order]]
    text = np.bincount(numbers, weights=~rows.is_special)
    quotas = np.maximum(1, np.round(config.fraction * text))[numbers[order]]
    if config.whole_words:
        first, last = _ends_of_runs(words[order], ranks)
        is_chosen = (last < quotas) | (first == 0)  # a row whose first word is longer has that one
    else:
        is_chosen = ranks < quotas
    return np.sort(order[is_chosen & ~rows.is_special[order]])


def _words(rows: TextRows, vocabulary: Vocabulary, config: MaskingConfig) -> Int64s:
    """Number the words, or the tokens where each counts by itself; what follows a special token begins one."""
    if not config.whole_words:
        return np.arange(len(rows.ids))
    goes_on = vocabulary.continues[rows.ids] & ~rows.is_special
    goes_on[1:] &= ~rows.is_special[:-1]
    return np.cumsum(~goes_on) - 1


def _ends_of_runs(values: Int64s, ranks: Int64s) -> tuple[Int64s, Int64s]:
    """Return, for every place, the ranks at which its run of equal values begins and ends."""
    begins = np.flatnonzero(np.diff(values, prepend=-1))
    lengths = np.diff(begins, append=len(values))
    return np.repeat(ranks[begins], lengths), np.repeat(ranks[begins + lengths - 1], lengths)
