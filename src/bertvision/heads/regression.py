"""Heads whose readout is a logistic or ridge regression, fitted on all rows at once.

The penalty is chosen on held-out rows.

It minimises a task's own loss plus a penalty on standardised features by L-BFGS, so that it serves every kind of rows.
"""

import copy
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from bertvision.encoder.encode import StateBatch
from bertvision.heads.head import Head
from bertvision.heads.readouts import ClassReadout
from bertvision.training.objective import Objective, losses_of, start_of
from bertvision.windows.batches import WindowBatch

# Of the squared weights, per row and where a row of standardised features has the length 1. On 16 and 64 rows of SST-2
# and STS-B stronger ones were chosen by chance and cost 1 to 3 points (docs/log.md).
PENALTIES: tuple[float, ...] = tuple(10.0 ** (-exponent / 2) for exponent in range(4, 11))
FOLDS = 5
MOST_ROWS = 4000  # that a penalty is chosen on
MOST_NUMBERS = 2**29  # of all features of all rows: 2 GB; more rows are left out
ITERATIONS = 100
DRAWS = 3  # of a share of the rows
LEAST_ROWS = 4  # in a draw
LEAST_SPREAD = 0.05  # in median spreads: what hardly varies is rounding, which would be blown up
Features = Float[Tensor, "row feature"]


class FitRows(NamedTuple):
    """Standardised features of windows, and what their losses need."""

    features: Features
    windows: WindowBatch
    objective: Objective
    bias: Tensor  # where logits start: the mean, or the logarithm of how often a class occurs
    scale: float  # the spread of numbers; else 1
    centre: Tensor  # of the features before they were standardised
    spread: Tensor

    def part(self, places: Tensor) -> "FitRows":
        """Return some of them."""
        chosen = self.windows._replace(labels=self.windows.labels[places], rows=self.windows.rows[places.numpy()])
        return self._replace(features=self.features[places], windows=chosen)

    def logits(self, line: "Fitted") -> Tensor:
        """Return what fitted weights make of them."""
        return self.bias + self.scale * (self.features @ line.weight.T + line.bias)

    def loss(self, line: "Fitted") -> Tensor:
        """Return the mean loss, numbers in units of their spread."""
        return losses_of(self.objective._replace(unit=self.scale), self.logits(line)[None], self.windows, "sum")[0]


class Unseen(NamedTuple):
    """What is said of rows by fits that have not seen them, which the choice of a penalty makes anyway."""

    windows: npt.NDArray[np.int64]  # their numbers, ascending
    logits: Tensor  # [row, column]


class RegressionFit(NamedTuple):
    """The penalty of a fitted head, and what else was found on the way."""

    penalty: float
    unseen: Unseen | None  # None where there are too few rows to hold any out
    fewer: dict[int, list[Head]]  # by the number of rows: the head fitted to so many alone, drawn up to DRAWS times


class Fitted(NamedTuple):
    """Weights and biases on standardised features."""

    weight: Tensor
    bias: Tensor


def fit_regression(
    head: Head, batches: Iterable[StateBatch], objective: Objective, seed: int, shares: Sequence[float] = ()
) -> RegressionFit:
    """Fit a head's readout to the states of all rows, and copies of the head to shares of the rows.

    The standardisation becomes a part of the weights, so that the head is used like any other.
    """
    rows = _standardise(head, *_gather(head, batches), objective)
    penalty, unseen = choose_penalty(rows, seed)
    _fit(head, rows, penalty)
    drawn = [part for share in shares for part in _draw(rows, share, seed)]
    fewer: dict[int, list[Head]] = {}
    for part in drawn:
        same = penalty * len(rows.features) / len(part.features)  # in sum, as in `choose_penalty`
        fewer.setdefault(len(part.features), []).append(_fit(copy.deepcopy(head), part, same))
    return RegressionFit(penalty, unseen, fewer)


def choose_penalty(rows: FitRows, seed: int) -> tuple[float, Unseen | None]:
    """Return the penalty with the lowest loss on held-out rows; groups of neighbours are held out together."""
    group, random = rows.objective.group, np.random.default_rng(seed)
    groups = random.permutation(len(rows.features) // group)[: MOST_ROWS // group]
    if len(groups) < 2:
        return PENALTIES[2], None
    totals = np.zeros(len(PENALTIES))
    logits = rows.features.new_zeros(len(PENALTIES), len(groups), group, rows.objective.columns)
    for fold in range(min(FOLDS, len(groups))):
        is_held_out = np.arange(len(groups)) % FOLDS == fold
        learned, held_out = (rows.part(_members(groups[chosen], group)) for chosen in (~is_held_out, is_held_out))
        line = _start(rows)
        for place, penalty in enumerate(PENALTIES):  # from the strongest on, each from where the one before ended
            line = _minimise(learned, penalty, line)
            totals[place] += held_out.loss(line).item() * is_held_out.sum()
            logits[place, torch.from_numpy(is_held_out)] = held_out.logits(line).view(-1, *logits.shape[2:])
    best, order = int(totals.argmin()), np.argsort(groups)
    windows = rows.windows.rows[_members(groups[order], group).numpy()]
    unseen = Unseen(windows, logits[best, torch.from_numpy(order)].flatten(0, 1))
    # Fewer rows need a stronger penalty: all rows together have the same one in sum, not in the mean.
    return PENALTIES[best] * len(groups) * group / len(rows.features), unseen


def _standardise(head: Head, features: Features, windows: WindowBatch, objective: Objective) -> FitRows:
    whole = torch.cat([features, _cosines(features, head)], dim=1)
    centre, spread = whole.mean(dim=0), whole.std(dim=0, correction=0)
    spread = spread.clamp(min=max(1e-6, LEAST_SPREAD * float(spread.median())))
    spread[: features.shape[1]] *= features.shape[1] ** 0.5  # cosines, not divided by it, are almost free of penalty
    bias, scale = start_of(objective, windows.labels)
    return FitRows((whole - centre) / spread, windows, objective, bias, scale, centre, spread)


def _fit(head: Head, rows: FitRows, penalty: float) -> Head:
    line = _minimise(rows, penalty, _start(rows))
    weight = rows.scale * line.weight / rows.spread
    _write(head, weight, rows.bias + rows.scale * line.bias - weight @ rows.centre)
    return head


def _draw(rows: FitRows, share: float, seed: int) -> list[FitRows]:
    """Draw a share of the rows several times; of many rows once, which cost more and vary less."""
    group, random = rows.objective.group, np.random.default_rng(seed)
    groups = len(rows.features) // group
    size = round(share * groups)
    if size < LEAST_ROWS:
        return []
    draws = DRAWS if len(rows.features) <= MOST_ROWS else 1
    parts = [rows.part(_members(random.permutation(groups)[:size], group)) for _ in range(draws)]
    starts = [start_of(rows.objective, part.windows.labels) for part in parts]
    return [part._replace(bias=bias, scale=scale) for part, (bias, scale) in zip(parts, starts, strict=True)]


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
    if head.pooling != "pair_difference":
        return features[:, :0]
    return _by_layer(features, head)[:, :, 3].mean(dim=-1)


def _by_layer(features: Features, head: Head) -> Float[Tensor, "row layer part hidden"]:
    layers = getattr(head.pooler, "layers", 1)
    return features.view(len(features), layers, 4, -1)


def _write(head: Head, weight: Tensor, bias: Tensor) -> None:
    readout = head.readout
    assert isinstance(readout, ClassReadout)
    linear = readout.linear
    num_features = linear.in_features
    own = weight[:, :num_features].clone()
    if num_features < weight.shape[1]:
        products = _by_layer(own, head)[:, :, 3]
        products += weight[:, num_features:, None] / products.shape[-1]
    with torch.no_grad():
        linear.weight.copy_(own / readout.unit)
        linear.bias.copy_(bias / readout.unit)


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
        total.backward()
        return total

    optimizer.step(closure)
    return Fitted(*(each.detach() for each in line))


def _members(groups: np.ndarray, group: int) -> Tensor:
    return torch.from_numpy((groups[:, None] * group + np.arange(group)).reshape(-1))
