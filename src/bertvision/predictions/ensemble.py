"""Several models' logits -> one's."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from bertvision.errors import SettingsError
from bertvision.predictions.logits import Logits, TokenGrid

How = Literal["max", "mean", "logits", "weighted"]


def combine_logits(
    grid: TokenGrid, members: Sequence[Logits], how: How, weights: Sequence[float] | None = None
) -> Logits:
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


def shares_of(how: How, weights: Sequence[float] | None, members: int) -> npt.NDArray[np.float64]:
    """Give what each member counts for, one in sum: the same for all, unless they are `weighted`."""
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
