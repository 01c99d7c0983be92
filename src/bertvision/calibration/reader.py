"""The reader decoder's answers to questions whose golds are known: what they score, and how they are calibrated.

Overlapping spans are added up at the temperature, so that the null odds depend on it: the threshold is tuned anew at
every temperature that is tried.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertvision.calibration.answers import Answers, Bools
from bertvision.calibration.calibration import Decision, judge
from bertvision.calibration.temperature import best_temperature, log_loss
from bertvision.calibration.thresholds import scores_at, tune_threshold
from bertvision.metrics.squad import Scores, answer_worths, score_squad1
from bertvision.predictions.logits import Logits
from bertvision.predictions.prediction import AnswerConfig
from bertvision.predictions.reader_decoder import PooledAnswers, pool_answers
from bertvision.predictions.texts import TextGrid
from bertvision.tasks.task import Question

SCORES = ("exact", "f1", "HasAns_f1", "NoAns_f1", "best_f1", "best_f1_thresh")


@dataclass(frozen=True)
class ReaderAnswers:
    """What the reader could answer; a model without "no answer" has a decision that abstains never."""

    questions: Sequence[Question]
    pooled: PooledAnswers
    texts: Sequence[str]  # of all answers

    def given(self, decision: Decision) -> dict[str, str]:
        """Return the answer to every question, empty where it abstains."""
        shares = self.pooled.shares(*decision)
        given = zip(self.questions, shares.best.tolist(), shares.null_odds.tolist(), strict=True)
        return {each.id: "" if odds > decision.threshold else self.texts[best] for each, best, odds in given}

    def take(self, places: npt.NDArray[np.int64]) -> "ReaderAnswers":
        """Return the answers to some of the questions, in their order."""
        is_kept = np.isin(self.pooled.questions, places)
        texts = [text for text, is_one in zip(self.texts, is_kept.tolist(), strict=True) if is_one]
        return ReaderAnswers([self.questions[place] for place in places.tolist()], self.pooled.take(places), texts)

    def at(self, temperature: float) -> Answers:
        """Return the best answers, and the scores of all, at a temperature; the task must have "no answer"."""
        assert self.pooled.nothing is not None
        shares, count = self.pooled.shares(0.0, temperature), len(self.questions)
        spans = {each.id: self.texts[best] for each, best in zip(self.questions, shares.best.tolist(), strict=True)}
        exact, f1 = answer_worths(self.questions, spans)
        rows, places = self.pooled.questions, np.arange(len(self.texts))
        columns = places - self.pooled.answer_at[rows] + 1  # "no answer" comes first
        scores = np.full((count, int(columns.max()) + 1), -np.inf)
        scores[:, 0], scores[rows, columns] = self.pooled.nothing.scores, self.pooled.scores(temperature)
        return Answers(
            self.questions,
            spans,
            dict(zip(spans, shares.null_odds.tolist(), strict=True)),
            shares.null_odds,
            scores,
            is_null=_marks(scores.shape, np.zeros(count, np.int64)),
            is_best=_marks(scores.shape, columns[shares.best]),
            exact=np.array(list(exact.values()), np.float64),
            f1=np.array(list(f1.values()), np.float64),
            is_impossible=np.array([each.is_impossible for each in self.questions]),
        )


def reader_answers(
    questions: Sequence[Question], grid: TextGrid, logits: Logits, config: AnswerConfig, *, has_null: bool
) -> ReaderAnswers:
    """Decode logits of questions as the reader does."""
    pooled = pool_answers(grid, logits, config, has_null=has_null)
    bounds = pooled.spans.bounds[pooled.span_at].tolist()
    return ReaderAnswers(questions, pooled, [grid.text[start:end] for start, end in bounds])


def fit_reader(held_out: ReaderAnswers) -> Decision:
    """Choose the temperature that fits best where each is taken with its own threshold: that of the best F1."""

    def loss(temperature: float) -> float:
        answers = held_out.at(temperature)
        threshold = tune_threshold(answers)
        return log_loss(answers.confidence(threshold, temperature), answers.worth(answers.exact, threshold) > 0)

    temperature = best_temperature(loss)
    return Decision(tune_threshold(held_out.at(temperature)), temperature)


def reader_scores(answers: ReaderAnswers, before: Decision, after: Decision | None = None) -> Scores:
    """Return what a record holds on the reader; `after` was fitted on other questions, if at all."""
    if answers.pooled.nothing is None:
        return {
            f"reader_{name}": score for name, score in score_squad1(answers.questions, answers.given(before)).items()
        }
    scores = decision_scores(answers, before)
    if after is not None:
        tuned = decision_scores(answers, after)
        scores |= {"tuned_threshold": after.threshold, "temperature": after.temperature}
        scores |= {f"tuned_{name}": tuned[name] for name in SCORES[:4] if name in tuned}
        scores |= {f"{name}_calibrated": tuned[name] for name in ("ece", "brier")}
    return {f"reader_{name}": score for name, score in scores.items()}


def decision_scores(answers: ReaderAnswers, decision: Decision) -> Scores:
    """Return official scores at a decision and at the best threshold, and how good its probabilities are."""
    found = answers.at(decision.temperature)
    official, judged = scores_at(found, decision.threshold), judge([found], [decision])
    return {name: official[name] for name in SCORES if name in official} | {"ece": judged.error, "brier": judged.brier}


def _marks(shape: tuple[int, ...], columns: npt.NDArray[np.int64]) -> Bools:
    """Mark one column of every row."""
    marks: Bools = np.arange(shape[1]) == columns[:, None]
    return marks
