"""Several models' logits -> one's."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from bertvision.errors import SettingsError
from bertvision.predictions.logits import Logits, TokenGrid, sigmoid

How = Literal["max", "mean", "logits", "weighted"]
Weights = Sequence[float] | None  # one for each member, where they are `weighted`
Floats = npt.NDArray[np.float64]
LEAST = 1e-12  # a probability that is written as 0 or 1 has no logit


def combine_logits(grid: TokenGrid, members: Sequence[Logits], how: How, weights: Weights = None) -> Logits:
    """Combine models that scored the same tokens.

    With p the softmax of a member's starts (or ends) over the tokens of a window, and w its share of the weights:

    - `max`: log max p, the largest of the members' probabilities, token by token (the papers' way);
    - `mean`: log (sum of p / number of members);
    - `weighted`: log (sum of w p), where the shares w are the weights divided by their sum;
    - `logits`: the mean of the logits as they are.

    Probabilities are handed back as logarithms, so that decoding adds them like logits.
    """
    if any(member.shape[1] > 2 for member in members):
        raise SettingsError(
            "a member of the ensemble scores pairs of start and end (readout: joint), which cannot be combined token "
            "by token; leave it out"
        )
    shares = shares_of(how, weights, len(members))
    combined: Logits
    if how == "logits":
        combined = np.mean(members, axis=0, dtype=np.float32)
    elif how == "max":
        combined = np.maximum.reduce([log_softmax(grid, member) for member in members])
    else:
        logs = zip(members, np.log(shares).astype(np.float32), strict=True)
        combined = np.logaddexp.reduce([log_softmax(grid, member) + log for member, log in logs])
    return combined


def combine_softmax(members: Sequence[Logits], how: How, weights: Weights = None, group: int | None = None) -> Logits:
    """Combine models that scored the same rows, [row, column], as `combine_logits` does for spans.

    Probabilities are a softmax over a row's columns, or over the `group` rows of a choice.
    """
    shares = shares_of(how, weights, len(members))
    stacked = np.stack(members).astype(np.float64)
    if how == "logits":
        return _float32(np.einsum("m,mrc->rc", shares, stacked))
    rows = stacked if group is None else stacked.reshape(len(members), -1, group)
    powers = np.exp(rows - rows.max(axis=2, keepdims=True))
    joined = _join(powers / powers.sum(axis=2, keepdims=True), how, shares)
    return _float32(np.log(np.maximum(joined, LEAST)).reshape(members[0].shape))


def combine_sigmoid(members: Sequence[Logits], how: How, weights: Weights = None) -> Logits:
    """Combine models that scored the same labels, [row, label], each of which has a probability of its own."""
    shares = shares_of(how, weights, len(members))
    stacked = np.stack(members).astype(np.float64)
    if how == "logits":
        return _float32(np.einsum("m,mrc->rc", shares, stacked))
    joined = np.clip(_join(sigmoid(stacked), how, shares), LEAST, 1 - LEAST)
    return _float32(np.log(joined / (1 - joined)))


def combine_numbers(members: Sequence[Logits], how: How, weights: Weights = None) -> Logits:
    """Average models' numbers, [row, 1], by weights if there are any; they have no probabilities."""
    if how == "max":
        raise SettingsError("numbers have no probabilities whose largest could be taken; use how: mean or weighted")
    shares = shares_of(how, weights, len(members))
    return _float32(np.einsum("m,mrc->rc", shares, np.stack(members).astype(np.float64)))


def shares_of(how: How, weights: Weights, members: int) -> npt.NDArray[np.float64]:
    """Return what each member counts for, one in sum: the same for all, unless they are `weighted`."""
    if how != "weighted" and weights is not None:
        raise SettingsError(f"`{how}` takes no weights; leave them out or choose `weighted`")
    if weights is None:
        if how == "weighted":
            raise SettingsError(f"`weighted` needs weights, one for each of the {members} members")
        return np.full(members, 1 / members)
    if len(weights) != members:
        raise SettingsError(f"got {len(weights)} weights for {members} members; give one for each")
    if bad := [weight for weight in weights if not 0 < weight < math.inf]:
        raise SettingsError(f"the weight {bad[0]:g} is no positive number; leave out a member that should not count")
    return np.array(weights, dtype=np.float64) / sum(weights)


def log_softmax(grid: TokenGrid, logits: Logits) -> Logits:
    """Normalise starts and ends within every window."""
    at, lengths = grid.window_at[:-1], np.diff(grid.window_at)
    shifted = logits - np.repeat(np.maximum.reduceat(logits, at), lengths, axis=0)
    totals = np.log(np.add.reduceat(np.exp(shifted), at))
    normalised: Logits = (shifted - np.repeat(totals, lengths, axis=0)).astype(np.float32)
    return normalised


def _join(probabilities: Floats, how: How, shares: Floats) -> Floats:
    joined: Floats = probabilities.max(axis=0) if how == "max" else np.einsum("m,mrc->rc", shares, probabilities)
    return joined


def _float32(values: Floats) -> Logits:
    return values.astype(np.float32)
