import numpy as np
import pytest

from bertvision.data.example import GoldAnswer, Question
from bertvision.evaluate.confidence import build_answers
from bertvision.predictions.prediction import Candidate


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
