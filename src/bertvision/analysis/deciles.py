"""How far numbers are off, by tenths of the golds."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bertvision.metrics.scores import Numbers, mae, rmse
from bertvision.tables import Table, number_cell

TENTHS = np.arange(1, 10) / 10


class NumberErrors(NamedTuple):
    """One model on the rows whose golds lie from low to high; None where there are none."""

    rows: int
    low: float | None
    high: float | None
    mean_error: float | None  # above 0: it says too much
    mae: float | None
    rmse: float | None


def score_deciles(golds: Sequence[float], given: Sequence[float]) -> list[NumberErrors]:
    """Return the errors in each tenth of the rows, lowest golds first, then those of all; equal golds stay together."""
    gold, found = np.array(golds, dtype=np.float64), np.array(given, dtype=np.float64)
    places = np.searchsorted(np.quantile(gold, TENTHS), gold)  # a gold equal to a bound is below it
    groups = [places == place for place in range(len(TENTHS) + 1)]
    return [_errors(gold[each], found[each]) for each in (*groups, np.ones(len(gold), dtype=bool))]


def decile_section(errors: Mapping[str, Sequence[NumberErrors]]) -> Table:
    """Lay out the errors of the models side by side."""
    header = ("gold", "rows", *(f"{what} {model}" for model in errors for what in ("bias", "MAE", "RMSE")))
    digits = _digits(max(of_model[-1].rmse or 0.0 for of_model in errors.values()))
    rows = [_row(same, digits) for same in zip(*errors.values(), strict=True)]
    rows[-1] = ("all", *rows[-1][1:])
    note = "Tenths of the rows by their gold numbers. Bias: mean error, below 0 where too little is said."
    return Table("Errors by gold number", header, tuple(rows), note)


def _errors(gold: Numbers, found: Numbers) -> NumberErrors:
    if not len(gold):
        return NumberErrors(0, None, None, None, None, None)
    mean = float((found - gold).mean())
    return NumberErrors(len(gold), float(gold.min()), float(gold.max()), mean, mae(gold, found), rmse(gold, found))


def _row(same: Sequence[NumberErrors], digits: int) -> tuple[str, ...]:
    first = same[0]
    name = "" if first.low is None else f"{first.low:,.4g} to {first.high:,.4g}"
    cells = (
        cell
        for each in same
        for cell in (
            number_cell(each.mean_error, digits, "+"),
            number_cell(each.mae, digits),
            number_cell(each.rmse, digits),
        )
    )
    return (name, f"{first.rows:,}", *cells)


def _digits(size: float) -> int:
    """Choose decimals that show three digits of a number of this size, which may be cents or millions."""
    return min(9, max(0, 2 - math.floor(math.log10(size)))) if size > 0 else 2
