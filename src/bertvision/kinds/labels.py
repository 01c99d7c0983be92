"""Any number of labels, each by itself."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertvision.analysis.mislabelled import suspect_labels
from bertvision.data.example import TextRow
from bertvision.errors import DataError
from bertvision.kinds.kind import Golds, TaskInfo
from bertvision.kinds.labelled import RowMember, TextRowKind
from bertvision.predictions.ensemble import LEAST, How, Weights, combine_sigmoid
from bertvision.predictions.files import class_of
from bertvision.predictions.logits import Logits, sigmoid
from bertvision.predictions.prediction import RowPrediction

THRESHOLD = 0.5  # a label is taken where its probability exceeds this
LabelSet = tuple[int, ...]  # a 0 or 1 for each label


class Labels(TextRowKind):
    """Any number of labels."""

    name = "labels"
    names_labels = True
    holds = "labels"
    contrast = "rows"
    softmax = None
    types = ("By label", "label")
    has_total = True

    def count_labels(self, examples: Sequence[Any], labels: Sequence[str]) -> dict[str, int]:
        """Count the rows that have each label."""
        return {label: sum(row.label[place] for row in examples) for place, label in enumerate(labels)}

    def decode_rows(self, ids: Sequence[str], logits: Logits, labels: Sequence[str]) -> list[RowPrediction]:
        """Return each row's labels."""
        return predict_label_sets(ids, logits)

    def logits_of(self, golds: Golds, member: RowMember) -> Logits:
        """Return logits that have the probabilities of a prediction folder."""
        shares = np.clip(self.probabilities_of(golds, member), LEAST, 1 - LEAST)
        return np.log(shares / (1 - shares)).astype(np.float32)

    def fits(self, prediction: RowPrediction) -> bool:
        """Whether the labels are those whose probabilities are high enough."""
        return prediction.label == tuple(int(share > THRESHOLD) for share in prediction.probabilities)

    def combine(
        self, layout: None, members: Sequence[Logits], how: How, weights: Weights = None, labels: Sequence[str] = ()
    ) -> Logits:
        """Combine models label by label."""
        return combine_sigmoid(members, how, weights)

    def show(self, example: TextRow, label: LabelSet, labels: Sequence[str]) -> list[str]:
        """Return the names of the labels that are there."""
        return self.to_json(label, labels)

    def wrongness(self, example: TextRow, prediction: RowPrediction) -> float:
        """Return how far the probability of the worst label lies from its gold."""
        pairs = zip(self.gold(example), prediction.probabilities, strict=False)
        return max((abs(gold - share) for gold, share in pairs), default=0.0)

    def sureness(self, prediction: RowPrediction) -> None:
        """Return None: labels have a probability each."""
        return

    def suspects(self, golds: Golds, predictions: Sequence[RowPrediction]) -> list[int] | None:
        """Return the rows any of whose labels looks wrong."""
        if not all(each.probabilities for each in predictions):
            return None
        return suspect_labels(self.gold_values(golds), np.array([each.probabilities for each in predictions]))

    def named(self, label: LabelSet, labels: Sequence[str]) -> set[tuple[Any, ...]]:
        """Return the labels that are there."""
        return {(name,) for name, is_on in zip(labels, label, strict=True) if is_on}

    def guess(self, golds: Sequence[LabelSet]) -> LabelSet:
        """Return the labels that more than half of the rows have."""
        return tuple((np.mean(golds, axis=0) > 0.5).astype(int).tolist())

    def to_json(self, label: LabelSet, labels: Sequence[str]) -> list[str]:
        """Return the names of the labels that are there."""
        return [name for name, is_on in zip(labels, label, strict=True) if is_on]

    def from_json(self, where: str, value: Any, labels: Sequence[str], info: TaskInfo) -> LabelSet:  # noqa: ANN401
        """Return the labels that a list names."""
        if not isinstance(value, list):
            raise DataError(f"{where}: expected a list of labels, got {value!r:.80}")
        taken = {class_of(where, each, labels, has_numbers=info.hub is not None) for each in value}
        return tuple(int(place in taken) for place in range(len(labels)))

    def further_labels(self, values: Sequence[Any]) -> set[str]:
        """Return the labels that were predicted."""
        return {str(each) for value in values for each in (value if isinstance(value, list) else (value,))}


LABELS = Labels()


def predict_label_sets(ids: Sequence[str], logits: Logits, threshold: float = THRESHOLD) -> list[RowPrediction]:
    """Take every label whose probability exceeds the threshold; logits are [row, label]."""
    probabilities = sigmoid(logits)
    taken = (probabilities > threshold).astype(int).tolist()
    found = zip(ids, map(tuple, taken), map(tuple, probabilities.tolist()), strict=True)
    return [RowPrediction(*each) for each in found]
