"""Several models' logits -> one's."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from bertvision.errors import SettingsError
from bertvision.predictions.logits import Logits, TokenGrid

How = Literal["max", "mean", "logits"]


def combine_logits(grid: TokenGrid, members: Sequence[Logits], how: How) -> Logits:
    """Combine models that scored the same tokens.

    `max` takes the larger of the softmax probabilities, token by token (the papers' way), `mean` their mean, `logits`
    the mean of the logits. Probabilities are handed back as logarithms, so that decoding adds them like logits.
    """
    if any(member.shape[1] > 2 for member in members):
        raise SettingsError(
            "a member of the ensemble scores pairs of start and end (readout: joint), which cannot be combined token "
            "by token; leave it out"
        )
    combined: Logits
    if how == "logits":
        combined = np.mean(members, axis=0, dtype=np.float32)
    elif how == "max":
        combined = np.maximum.reduce([log_softmax(grid, member) for member in members])
    else:
        total = np.logaddexp.reduce([log_softmax(grid, member) for member in members])
        combined = total - np.float32(np.log(len(members)))
    return combined


def log_softmax(grid: TokenGrid, logits: Logits) -> Logits:
    """Normalise starts and ends within every window."""
    at, lengths = grid.window_at[:-1], np.diff(grid.window_at)
    shifted = logits - np.repeat(np.maximum.reduceat(logits, at), lengths, axis=0)
    totals = np.log(np.add.reduceat(np.exp(shifted), at))
    normalised: Logits = (shifted - np.repeat(totals, lengths, axis=0)).astype(np.float32)
    return normalised
