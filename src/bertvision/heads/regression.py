"""Heads whose readout is a logistic or ridge regression, fitted on all rows at once.

The penalty is chosen on held-out rows.

It minimises a task's own loss plus a penalty on standardised features by L-BFGS, so that it serves every kind of rows.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from bertvision.encoder.encode import StateBatch
from bertvision.heads.head import Head
from bertvision.training.objective import Objective, losses_of, start_of
from bertvision.windows.batches import WindowBatch

# Of the squared weights, per row and where a row of standardised features has the length 1. On 16 and 64 rows of SST-2
# and STS-B stronger ones were chosen by chance and cost 1 to 3 points (docs/log.md).
PENALTIES: tuple[float, ...] = tuple(10.0 ** (-exponent / 2) for exponent in range(4, 11))
FOLDS = 5
MOST_ROWS = 4000  # that a penalty is chosen on
MOST_NUMBERS = 2**29  # of all features of all rows: 2 GB; more rows are left out
ITERATIONS = 100
LEAST_SPREAD = 0.05  # in median spreads: what hardly varies is rounding, which would be blown up
Features = Float[Tensor, "row feature"]


class FitRows(NamedTuple):
    """Standardised features of windows, and what their losses need."""

    features: Features
    windows: WindowBatch
    objective: Objective
    bias: Tensor  # where logits start: the mean, or the logarithm of how often a class occurs
    scale: float  # the spread of numbers; else 1

    def part(self, places: Tensor) -> "FitRows":
        """Return some of them."""
        chosen = self.windows._replace(labels=self.windows.labels[places], rows=self.windows.rows[places.numpy()])
        return self._replace(features=self.features[places], windows=chosen)

    def logits(self, line: "Fitted") -> Tensor:
        """Return what fitted weights make of them."""
        return self.bias + self.scale * (self.features @ line.weight.T + line.bias)

    def loss(self, line: "Fitted") -> Tensor:
        """Return the mean loss, numbers in units of their spread."""
        return losses_of(self.objective, self.logits(line)[None], self.windows, "sum")[0] / self.scale**2


class Fitted(NamedTuple):
    """Weights and biases on standardised features."""

    weight: Tensor
    bias: Tensor


def fit_regression(head: Head, batches: Iterable[StateBatch], objective: Objective, seed: int) -> float:
    """Fit a head's readout to the states of all rows, and return the penalty that was chosen.

    The standardisation becomes a part of the weights, so that the head is used like any other.
    """
    features, windows = _gather(head, batches)
    cosines = _cosines(features, head)
    whole = torch.cat([features, cosines], dim=1)
    centre, spread = whole.mean(dim=0), whole.std(dim=0, correction=0)
    spread = spread.clamp(min=max(1e-6, LEAST_SPREAD * float(spread.median())))
    spread[: features.shape[1]] *= features.shape[1] ** 0.5  # cosines, not divided by it, are almost free of penalty
    bias, scale = start_of(objective, windows.labels)
    rows = FitRows((whole - centre) / spread, windows, objective, bias, scale)
    penalty = choose_penalty(rows, seed)
    line = _minimise(rows, penalty, _start(rows))
    weight = scale * line.weight / spread
    _write(head, weight, bias + scale * line.bias - weight @ centre, features.shape[1])
    return penalty


def choose_penalty(rows: FitRows, seed: int) -> float:
    """Return the penalty with the lowest loss on held-out rows; groups of neighbours are held out together."""
    group, random = rows.objective.group, np.random.default_rng(seed)
    groups = random.permutation(len(rows.features) // group)[: MOST_ROWS // group]
    if len(groups) < 2:
        return PENALTIES[2]
    totals = np.zeros(len(PENALTIES))
    for fold in range(min(FOLDS, len(groups))):
        is_held_out = np.arange(len(groups)) % FOLDS == fold
        learned, held_out = (rows.part(_members(groups[chosen], group)) for chosen in (~is_held_out, is_held_out))
        line = _start(rows)
        for place, penalty in enumerate(PENALTIES):  # from the strongest on, each from where the one before ended
            line = _minimise(learned, penalty, line)
            totals[place] += held_out.loss(line).item() * is_held_out.sum()
    # Fewer rows need a stronger penalty: all rows together have the same one in sum, not in the mean.
    return PENALTIES[int(totals.argmin())] * len(groups) * group / len(rows.features)


def _gather(head: Head, batches: Iterable[StateBatch]) -> tuple[Features, WindowBatch]:
    """Return every window's features and labels in the order of the windows."""
    parts, labels, places, left = [], [], [], 0
    for batch in batches:
        states = head.own_states(batch.states.float())
        parts.append(head.pooler(states, *batch.seen[1:])[:, 0].cpu())
        labels.append(batch.windows.labels.cpu())
        places.append(batch.windows.rows)
        left = max(1, MOST_NUMBERS // parts[0].shape[1])
        if sum(map(len, parts)) >= left:
            break
    rows = np.concatenate(places)
    order = torch.from_numpy(np.argsort(rows))
    windows = batch.windows._replace(labels=torch.cat(labels)[order], rows=rows[order.numpy()])
    return torch.cat(parts)[order], windows


def _cosines(features: Features, head: Head) -> Float[Tensor, "row cosine"]:
    """Return the cosines of compared texts, one of each layer: the mean of their products (`pooling.compare`)."""
    if head.pooling != "compared":
        return features[:, :0]
    return _by_layer(features, head)[:, :, 3].mean(dim=-1)


def _by_layer(features: Features, head: Head) -> Float[Tensor, "row layer part hidden"]:
    layers = getattr(head.pooler, "layers", 1)
    return features.view(len(features), layers, 4, -1)


def _write(head: Head, weight: Tensor, bias: Tensor, num_features: int) -> None:
    own = weight[:, :num_features].clone()
    if num_features < weight.shape[1]:
        products = _by_layer(own, head)[:, :, 3]
        products += weight[:, num_features:, None] / products.shape[-1]
    linear = head.readout.linear
    assert isinstance(linear, nn.Linear)
    with torch.no_grad():
        linear.weight.copy_(own)
        linear.bias.copy_(bias)


def _start(rows: FitRows) -> Fitted:
    columns = rows.objective.columns
    return Fitted(rows.features.new_zeros(columns, rows.features.shape[1]), rows.features.new_zeros(columns))


def _minimise(rows: FitRows, penalty: float, start: Fitted) -> Fitted:
    line = Fitted(*(each.clone().requires_grad_() for each in start))
    optimizer = torch.optim.LBFGS(
        list(line), max_iter=ITERATIONS, history_size=10, tolerance_grad=1e-4, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        total = rows.loss(line) + penalty / 2 * line.weight.square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return Fitted(*(each.detach() for each in line))


def _members(groups: np.ndarray, group: int) -> Tensor:
    return torch.from_numpy((groups[:, None] * group + np.arange(group)).reshape(-1))
