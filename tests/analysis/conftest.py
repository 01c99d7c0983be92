import pytest

from bertvision.analysis.breakdown import score_answers
from bertvision.data.example import GoldAnswer, Question

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
