"""The reader decoder's answers to questions whose golds are known: what they score; `fit_decision` calibrates them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bertvision.data.example import Question
from bertvision.evaluate.calibration import Decision, judge, scores_at
from bertvision.evaluate.confidence import Answers, Bools
from bertvision.kinds.kind import Answering
from bertvision.metrics.squad import Scores, answer_worths, score_squad1
from bertvision.predictions.logits import Logits, TextGrid
from bertvision.predictions.prediction import AnswerConfig
from bertvision.predictions.reader_decoder import pool_answers

SCORES = ("exact", "f1", "HasAns_f1", "NoAns_f1", "best_f1", "best_f1_thresh")


def reader_answers(
    questions: Sequence[Question], grid: TextGrid, logits: Logits, config: AnswerConfig, *, has_null: bool
) -> Answers:
    """Decode logits of questions as the reader does; without "no answer" all null odds are -inf."""
    pooled = pool_answers(grid, logits, config, has_null=has_null)
    shares, rows = pooled.shares(0.0, 1.0), pooled.questions
    bounds = pooled.spans.bounds[pooled.span_at[shares.best]].tolist()
    spans = {each.id: grid.text[start:end] for each, (start, end) in zip(questions, bounds, strict=True)}
    exact, f1 = answer_worths(questions, spans)
    columns = np.arange(len(rows)) - pooled.answer_at[rows] + 1  # "no answer" comes first
    scores = np.full((len(questions), int(columns.max()) + 1), -np.inf)
    scores[rows, columns], scores[:, 0] = pooled.scores, pooled.null_scores
    return Answers(
        questions,
        spans,
        dict(zip(spans, shares.null_odds.tolist(), strict=True)),
        shares.null_odds,
        scores,
        is_null=_marks(scores.shape, np.zeros(len(questions), np.int64)),
        is_best=_marks(scores.shape, columns[shares.best]),
        exact=np.array(list(exact.values()), np.float64),
        f1=np.array(list(f1.values()), np.float64),
        is_impossible=np.array([each.is_impossible for each in questions]),
    )


def reader_scores(answers: Answers, before: Decision, after: Decision | None = None) -> Scores:
    """Return what a record holds on the reader; `after` was fitted on other questions, if at all."""
    if np.isneginf(answers.odds).all():
        scores = score_squad1(answers.questions, answers.best_spans)
    else:
        scores = _decision_scores(answers, before)
    if after is not None:
        tuned = _decision_scores(answers, after)
        scores |= {"tuned_threshold": after.threshold, "temperature": after.temperature}
        scores |= {f"tuned_{name}": tuned[name] for name in SCORES[:4] if name in tuned}
        scores |= {f"{name}_calibrated": tuned[name] for name in ("ece", "brier")}
    return {f"reader_{name}": score for name, score in scores.items()}


def _decision_scores(answers: Answers, decision: Decision) -> Scores:
    """Return official scores at a decision and at the best threshold, and how good its probabilities are."""
    official, judged = scores_at(answers, decision.threshold), judge([answers], [decision])
    return {name: official[name] for name in SCORES if name in official} | {"ece": judged.error, "brier": judged.brier}


def _marks(shape: tuple[int, ...], columns: npt.NDArray[np.int64]) -> Bools:
    """Mark one column of every row."""
    marks: Bools = np.arange(shape[1]) == columns[:, None]
    return marks


def reader_answers_of(asked: Answering, logits: Logits) -> Answers | None:
    """Return the answers of the decoder `reader`; None where `answers.decoders` does not ask for it."""
    kind = asked.info.kind
    if "reader" not in asked.config.decoders or not kind.in_context:
        return None
    return reader_answers(asked.split.examples, asked.layout, logits, asked.config, has_null=kind.has_null)
