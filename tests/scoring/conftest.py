import numpy as np
import pytest

from bertvision.data.example import GoldAnswer, Question
from bertvision.predictions.prediction import Candidate
from bertvision.scoring.answers import score_answers
from bertvision.scoring.confidence import build_answers

CONTEXT = "The weir was built in 1887 by Hannah Coyle of Leeds."


@pytest.fixture
def ask():
    """Make a question; golds are texts of the context."""

    def make(identity, *golds, text="who?", context=CONTEXT, title="Weir"):
        answers = tuple(GoldAnswer(gold, context.index(gold)) for gold in golds)
        return Question(identity, text, context, answers, title)

    return make


@pytest.fixture
def questions(ask):
    """Two answerable questions and two that are not."""
    return [ask("when", "1887", "in 1887"), ask("who", "Hannah Coyle of Leeds"), ask("why"), ask("where")]


@pytest.fixture
def scored(questions):
    """Score answers to these questions, in their order."""

    def make(*texts):
        return score_answers("model", questions, dict(zip([each.id for each in questions], texts, strict=True)))

    return make


def make_model(scores_by_question, golds):
    """Questions whose candidates have scores: {text: score}, "" for no answer; gives what `build_answers` takes."""
    questions, spans, odds, candidates = [], {}, {}, {}
    for number, (scores, gold) in enumerate(zip(scores_by_question, golds, strict=True)):
        name = f"q{number}"
        answers = () if gold is None else (GoldAnswer(gold, 0),)
        questions.append(Question(name, "?", "a context", answers, f"article {number // 2}"))
        best = max((text for text in scores if text), key=scores.get)
        total = sum(np.exp(score) for score in scores.values())
        spans[name], odds[name] = best, scores.get("", 0.0) - scores[best]
        ranked = sorted(scores.items(), key=lambda pair: -pair[1])
        candidates[name] = tuple(Candidate(text, score, 0.0, float(np.exp(score) / total)) for text, score in ranked)
    return questions, spans, odds, candidates


@pytest.fixture(scope="session")
def make_answers():
    """Return a function of scores and golds, see `make_model`."""
    return lambda scores, golds: build_answers(*make_model(scores, golds))
