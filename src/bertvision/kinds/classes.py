"""One class of several: what of a text, or of a pair of texts."""

from collections.abc import Sequence
from typing import Any

from bertvision.kinds.labelled import TextRowKind
from bertvision.predictions.logits import Logits, softmax
from bertvision.predictions.prediction import RowPrediction


class Classes(TextRowKind):
    """One class of several."""

    name = "class"
    needs_two_labels = True
    names_labels = True
    holds = "class"
    contrast = "rows"
    can_be_taught = True
    grouped_by_class = True
    has_classes = True

    def decode_rows(self, ids: Sequence[str], logits: Logits, labels: Sequence[str]) -> list[RowPrediction]:
        """Return each row's likeliest class."""
        return predict_classes(ids, logits)

    def further_labels(self, values: Sequence[Any]) -> set[str]:
        """Return the classes that were predicted."""
        return {str(value) for value in values}


CLASSES = Classes()


def predict_classes(ids: Sequence[str], logits: Logits) -> list[RowPrediction]:
    """Take each row's likeliest class; logits are [row, class]."""
    best, probabilities = logits.argmax(axis=1).tolist(), softmax(logits).tolist()
    return [RowPrediction(*each) for each in zip(ids, best, map(tuple, probabilities), strict=True)]
