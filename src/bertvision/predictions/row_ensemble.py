"""Several models' logits of rows, or of tokens with tags -> one's."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bertvision.errors import SettingsError
from bertvision.predictions.ensemble import How, shares_of
from bertvision.predictions.logits import Logits
from bertvision.tasks.task import Kind

Floats = npt.NDArray[np.float64]
LEAST = 1e-12  # a probability that is written as 0 or 1 has no logit


def combine_rows(
    kind: Kind, members: Sequence[Logits], how: How, weights: Sequence[float] | None = None, group: int = 1
) -> Logits:
    """Combine models that scored the same rows ([row, column]), as `combine_logits` does for spans.

    Probabilities are a softmax over a row's columns, or over the `group` rows of a choice; each label of a row with any
    number of them has a probability of its own. Numbers have none: their mean, by weights if there are any, is taken.
    """
    shares = shares_of(how, weights, len(members))
    stacked = np.stack(members).astype(np.float64)
    if kind == "number" and how == "max":
        raise SettingsError("numbers have no probabilities whose largest could be taken; use how: mean or weighted")
    if kind == "number" or how == "logits":
        return _float32(np.einsum("m,mrc->rc", shares, stacked))
    if kind == "labels":
        joined = np.clip(_join(1 / (1 + np.exp(-np.clip(stacked, -500, 500))), how, shares), LEAST, 1 - LEAST)
        return _float32(np.log(joined / (1 - joined)))
    rows = stacked.reshape(len(members), -1, group) if kind == "choice" else stacked
    powers = np.exp(rows - rows.max(axis=2, keepdims=True))
    joined = _join(powers / powers.sum(axis=2, keepdims=True), how, shares)
    return _float32(np.log(np.maximum(joined, LEAST)).reshape(members[0].shape))


def _join(probabilities: Floats, how: How, shares: Floats) -> Floats:
    joined: Floats = probabilities.max(axis=0) if how == "max" else np.einsum("m,mrc->rc", shares, probabilities)
    return joined


def _float32(values: Floats) -> Logits:
    return values.astype(np.float32)
