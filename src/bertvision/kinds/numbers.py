"""A number of a text, or of a pair of texts."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bertvision.data.example import TextRow
from bertvision.kinds.kind import Golds, Joined, TaskInfo
from bertvision.kinds.labelled import RowMember, TextRowKind
from bertvision.predictions.ensemble import How, Weights, combine_numbers
from bertvision.predictions.files import number_of
from bertvision.predictions.logits import Logits
from bertvision.predictions.prediction import AnswerConfig, RowPrediction
from bertvision.scoring import metrics
from bertvision.scoring.mislabelled import suspect_numbers
from bertvision.tables import Table, figure, number_cell

SCORE_RANGE = (0.0, 5.0)  # of STS-B, outside of which GLUE takes no number
TENTHS = np.arange(1, 10) / 10


class Numbers(TextRowKind):
    """A number."""

    name = "number"
    holds = "number"
    contrast = "texts"
    softmax = None
    hows = ("mean", "logits", "weighted")
    is_right_or_wrong = False
    types = None

    def columns(self, labels: Sequence[str]) -> int:
        """Return 1: the number itself."""
        return 1

    def count_labels(self, examples: Sequence[TextRow], labels: Sequence[str]) -> dict[str, int]:
        """Return nothing: numbers are not counted."""
        return {}

    def decode_rows(self, ids: Sequence[str], logits: Logits, labels: Sequence[str]) -> list[RowPrediction]:
        """Return the logits for what they are."""
        return predict_numbers(ids, logits)

    def join(
        self, golds: Golds, members: Sequence[RowMember], how: How, shares: Weights, config: AnswerConfig
    ) -> Joined:
        """Average the members' numbers."""
        logits = [np.array([[each.label] for each in member.predictions], dtype=np.float32) for member in members]
        joined = self.combine(None, logits, how, shares)
        return Joined(self.decode_rows([each.id for each in golds.examples], joined, ()), "numbers")

    def combine(
        self, layout: None, members: Sequence[Logits], how: How, weights: Weights = None, labels: Sequence[str] = ()
    ) -> Logits:
        """Average the numbers."""
        return combine_numbers(members, how, weights)

    def scatter(self, golds: Golds, predictions: Sequence[RowPrediction]) -> list[tuple[float, float]]:
        """Return true and predicted numbers."""
        pairs = zip(golds.examples, predictions, strict=True)
        return [(float(self.gold(example)), float(self.label(each))) for example, each in pairs]

    def wrongness(self, example: TextRow, prediction: RowPrediction) -> float:
        """Return how far off it is."""
        return self._error(example, prediction)

    def sureness(self, prediction: RowPrediction) -> None:
        """Return None: a number has no probability."""
        return

    def suspects(self, golds: Golds, predictions: Sequence[RowPrediction]) -> list[int]:
        """Return the rows whose error is far larger than is usual."""
        return suspect_numbers(self.gold_values(golds), np.array([each.label for each in predictions]))

    def show(self, example: TextRow, label: float, labels: Sequence[str]) -> float:
        """Return the number."""
        return label

    def guess(self, golds: Sequence[float]) -> float:
        """Return the mean."""
        return float(np.mean(golds))

    def to_json(self, label: float, labels: Sequence[str]) -> float:
        """Return the number."""
        return label

    def from_json(self, where: str, value: Any, labels: Sequence[str], info: TaskInfo) -> float:  # noqa: ANN401
        """Return a finite number."""
        return number_of(where, value)

    def submitted(self, label: float, labels: Sequence[str], info: TaskInfo) -> str:
        """Return a number that GLUE's site takes."""
        low, high = SCORE_RANGE
        return f"{min(max(label, low), high):.3f}"

    def sorted_by_interest(self, differing: list[tuple[Any, Any, Any]]) -> list[tuple[Any, Any, Any]]:
        """Order examples with the most unlike errors first."""
        return sorted(differing, key=lambda each: -abs(self._error(each[0], each[1]) - self._error(each[0], each[2])))

    def better(self, example: TextRow, a: RowPrediction, b: RowPrediction) -> str:
        """Say who is nearer to the gold."""
        one, other = (self._error(example, side) for side in (a, b))
        return "both as near" if one == other else "A nearer" if one < other else "B nearer"

    def _error(self, example: TextRow, prediction: RowPrediction) -> float:
        error: float = abs(self.label(prediction) - self.gold(example))
        return error

    def more_tables(self, golds: Sequence[float], given: Mapping[str, Sequence[float]]) -> tuple[list[Table], Any]:
        """Return the errors by tenths of the golds."""
        errors = {model: score_deciles(golds, each) for model, each in given.items()}
        plain = {model: [each._asdict() for each in of_model] for model, of_model in errors.items()}
        return [decile_section(errors)], plain


NUMBERS = Numbers()


def predict_numbers(ids: Sequence[str], logits: Logits) -> list[RowPrediction]:
    """Take the logits for what they are; they are [row, 1]."""
    return [RowPrediction(*each) for each in zip(ids, logits[:, 0].tolist(), strict=True)]


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
    rows = [_row(same, digits) for same in zip(*errors.values(), strict=True) if same[0].rows]
    rows[-1] = ("all", *rows[-1][1:])
    note = "Tenths of rows by gold number, equal ones together. Bias: mean error, below 0 where too little is said."
    return Table("Errors by gold number", header, tuple(rows), note)


def _errors(gold: metrics.Numbers, found: metrics.Numbers) -> NumberErrors:
    if not len(gold):
        return NumberErrors(0, None, None, None, None, None)
    low, high, mean = float(gold.min()), float(gold.max()), float((found - gold).mean())
    return NumberErrors(len(gold), low, high, mean, metrics.mae(gold, found), metrics.rmse(gold, found))


def _row(same: Sequence[NumberErrors], digits: int) -> tuple[str, ...]:
    first = same[0]
    ends = [figure(end) for end in (first.low, first.high) if end is not None]
    name = " to ".join(dict.fromkeys(ends))
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
