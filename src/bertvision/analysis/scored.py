"""One model's answers, each with what it is worth: what all analyses start from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertvision.data.example import Question
from bertvision.errors import DataError
from bertvision.metrics.squad import Worths, answer_worths, normalize_answer
from bertvision.predictions.files import PredictionFolder


@dataclass(frozen=True)
class ScoredAnswers:
    """Answers by question, officially compared with the golds."""

    texts: Mapping[str, str]
    worths: Worths
    folder: PredictionFolder | None = None  # what else was read with them

    def worth(self, metric: str, questions: Sequence[Question]) -> npt.NDArray[np.float64]:
        """Return what the answers to some questions are worth, 0 to 1."""
        by_question = self.worths.exact if metric == "exact" else self.worths.f1
        return np.array([by_question[question.id] for question in questions], dtype=np.float64)

    def score(self, metric: str, questions: Sequence[Question]) -> float | None:
        """Return the mean worth in percent; None where there is no question."""
        # Python's own sum, as the official script: NumPy's can differ in the last digit.
        return 100.0 * sum(self.worth(metric, questions).tolist()) / len(questions) if questions else None

    def is_right(self, question: Question) -> bool:
        """Return whether the answer equals a gold."""
        return bool(self.worths.exact[question.id])

    def abstains(self, question: Question) -> bool:
        """Return whether the answer is "no answer", as the official script sees it."""
        return not normalize_answer(self.texts[question.id])


def score_answers(
    name: str, questions: Sequence[Question], texts: Mapping[str, str], folder: PredictionFolder | None = None
) -> ScoredAnswers:
    """Compare answers with the golds; they must be about exactly these questions."""
    known = {question.id for question in questions}
    if unknown := texts.keys() - known:
        raise DataError(
            f"{name}: {len(unknown):,} of its {len(texts):,} questions are not in the gold file, such as "
            f"{min(unknown)!r}; give the file that they were predicted for"
        )
    if missing := known - texts.keys():
        raise DataError(
            f"{name}: no prediction for {len(missing):,} of {len(known):,} questions, such as {min(missing)!r}; "
            "predict an empty string where the model gives no answer"
        )
    return ScoredAnswers(texts, answer_worths(questions, texts), folder)
