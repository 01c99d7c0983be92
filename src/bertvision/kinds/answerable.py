"""Whether a question has an answer in its context, decided in all its windows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertvision.data.example import Question
from bertvision.files import write_json_rows
from bertvision.kinds.classes import predict_classes
from bertvision.kinds.kind import Answering, Golds
from bertvision.kinds.labelled import LabelKind
from bertvision.kinds.questions import QuestionKind
from bertvision.predictions.files import PAPER_FILE
from bertvision.predictions.logits import Logits, softmax
from bertvision.predictions.prediction import RowPrediction
from bertvision.windows.window import Window

NO_ANSWER = 1  # the class of a question, or of a window, that has none


class Answerable(QuestionKind, LabelKind):
    """A class of a question, which has several windows."""

    name = "answerable"
    classifies_windows = True
    grouped_by_class = True
    has_classes = True

    def lay_out(self, examples: Sequence[Question], windows: Sequence[Window]) -> npt.NDArray[Any]:
        """Return which question each window belongs to."""
        return np.array([window.example for window in windows])

    def decode(self, asked: Answering, logits: Logits) -> list[RowPrediction]:
        """Say of each question whether it has no answer."""
        return predict_answerable([example.id for example in asked.split.examples], asked.layout, logits)

    def decode_rows(self, ids: Sequence[str], logits: Logits, labels: Sequence[str]) -> list[RowPrediction]:
        """Return each question's class, from what was said of the question as a whole."""
        return predict_classes(ids, logits)

    def gold(self, example: Question) -> int:
        """Return whether the question has no answer."""
        return int(example.is_impossible)

    def guesses(self, golds: Golds, train: Sequence[Question]) -> list[RowPrediction]:
        """Predict the commoner class, by the 2020 system's rule too."""
        guess = self.guess([self.gold(example) for example in train])
        return [RowPrediction(each.id, guess, paper_label=guess) for each in golds.examples]

    def write(self, folder: Path, golds: Golds, predictions: Sequence[RowPrediction], part: str = "") -> None:
        """Write predictions by id, also those by the 2020 system's rule where there are any."""
        super().write(folder, golds, predictions, part)
        paper = {each.id: golds.labels[each.paper_label] for each in predictions if each.paper_label is not None}
        if paper:
            write_json_rows(folder / PAPER_FILE, paper)


ANSWERABLE = Answerable()


def predict_answerable(ids: Sequence[str], question_of: npt.NDArray[Any], logits: Logits) -> list[RowPrediction]:
    """Say of each question whether it has no answer: it has none only if all its windows say so.

    Logits are [window, 2], `question_of` is [window]. By the 2020 system's rule (`paper_label`) one such window is
    enough.
    """
    no_answer = softmax(logits)[:, NO_ANSWER]
    says_none = logits.argmax(axis=1)
    lowest = np.full(len(ids), np.inf)
    all_say, any_says = np.ones(len(ids), dtype=np.int64), np.zeros(len(ids), dtype=np.int64)
    np.minimum.at(lowest, question_of, no_answer)
    np.minimum.at(all_say, question_of, says_none)
    np.maximum.at(any_says, question_of, says_none)
    pairs = [(1 - each, each) for each in lowest.tolist()]
    found = zip(ids, all_say.tolist(), pairs, any_says.tolist(), strict=True)
    return [RowPrediction(*each) for each in found]
