import numpy as np
import pytest

from bertvision.data.example import GoldAnswer, Question
from bertvision.metrics.best_threshold import best_f1, build_sweep, resample_best_f1
from bertvision.metrics.resampling import Draw, draw_counts
from bertvision.metrics.squad import answer_worths, score_squad2

WORDS = ["weir", "stone", "river", "1887", "coyle"]


def make_question(identity, text, is_impossible):
    return Question(identity, "?", text, () if is_impossible else (GoldAnswer(text, 0),), "")


def make_questions(random, count):
    """Make questions about one to three words, which every other one has as their answer."""
    texts = [" ".join(random.choice(WORDS, size=random.integers(1, 4))) for _ in range(count)]
    return [make_question(f"q{n}", text, n % 2 == 0) for n, text in enumerate(texts)]


def make_model(random, questions):
    """Invent odds of "no answer", many of them equal, and best spans, which are right more often where they are low."""
    odds = {questions[place].id: float(random.integers(-4, 5)) for place in random.permutation(len(questions))}
    guesses = {each.id: str(random.choice([*WORDS, ""])) for each in questions}
    spans = {
        each.id: each.context if odds[each.id] < random.integers(-4, 5) else guesses[each.id] for each in questions
    }
    return spans, odds


@pytest.fixture
def study():
    """Forty questions and three models."""
    random = np.random.default_rng(3)
    questions = make_questions(random, 40)
    return questions, [make_model(random, questions) for _ in range(3)]


def sweep_plainly(questions, spans, odds, counts):
    """Take the official script's walk over the questions, each repeated as often as it was drawn."""
    count_of = {each.id: int(count) for each, count in zip(questions, counts, strict=True)}
    question_of, f1 = {each.id: each for each in questions}, answer_worths(questions, spans).f1
    current = best = sum(count_of[each.id] for each in questions if each.is_impossible)
    for name in sorted(odds, key=lambda each: odds[each]):
        for _ in range(count_of[name]):
            if not question_of[name].is_impossible:
                current += f1[name]
            elif spans[name]:
                current -= 1
            best = max(best, current)
    return 100.0 * best / sum(count_of.values())


def test_the_best_f1_of_the_questions_as_they_are_is_the_official_one_to_the_last_digit(study):
    questions, models = study
    official = [score_squad2(questions, *model)["best_f1"] for model in models]
    found = resample_best_f1([build_sweep(questions, *model) for model in models], Draw(np.arange(40), 1, 1))
    assert found[:, 0].tolist() == official
    assert len(set(official)) == 3


def test_every_resample_has_a_threshold_of_its_own(study):
    questions, models = study
    found = resample_best_f1([build_sweep(questions, *model) for model in models], Draw(np.arange(40), 50, 4))
    drawn = np.concatenate(list(draw_counts(np.ones(40, dtype=np.int64), 50, seed=4)))
    expected = [[sweep_plainly(questions, *model, counts) for counts in drawn] for model in models]
    assert found[:, 1:] == pytest.approx(np.array(expected), abs=1e-10)


def test_questions_of_an_article_are_drawn_together(study):
    questions, models = study
    units = np.arange(40) // 8
    found = resample_best_f1([build_sweep(questions, *model) for model in models], Draw(units, 50, 4))
    drawn = np.concatenate(list(draw_counts(np.ones(5, dtype=np.int64), 50, seed=4)))
    expected = [[sweep_plainly(questions, *model, counts[units]) for counts in drawn] for model in models]
    assert found[:, 1:] == pytest.approx(np.array(expected), abs=1e-10)


def test_equal_odds_are_taken_one_by_one_as_in_their_file():
    questions = [make_question("a", "weir", False), make_question("b", "weir", True)]
    spans = {"a": "weir", "b": "weir"}
    for order, expected in (("ab", 100.0), ("ba", 50.0)):  # the sweep may stop between the two
        sweep = build_sweep(questions, spans, dict.fromkeys(order, 0.0))
        assert best_f1(sweep, np.ones((1, 2))).tolist() == [expected]
        assert score_squad2(questions, spans, dict.fromkeys(order, 0.0))["best_f1"] == expected


def test_where_no_answer_helps_all_questions_are_declined():
    questions = make_questions(np.random.default_rng(1), 10)
    impossible = np.array([each.is_impossible for each in questions], dtype=np.float64)
    sweep = build_sweep(questions, {each.id: "" for each in questions}, {each.id: 0.0 for each in questions})
    counts = np.array([[1.0] * 10, [2.0, 0.0] * 5])
    assert best_f1(sweep, counts).tolist() == (10 * (counts @ impossible)).tolist()
