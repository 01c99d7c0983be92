from itertools import product

import numpy as np
import pytest

from bertvision.data.example import GoldAnswer, Question
from bertvision.scoring import bootstrap
from bertvision.scoring.bootstrap import (
    Draw,
    best_f1,
    build_sweep,
    draw_counts,
    interval_of,
    mcnemar_p_value,
    resample_best_f1,
    resample_means,
    resample_sums,
)
from bertvision.scoring.squad import answer_worths, score_squad2


def coins_as_uneven(one, other):
    """Count, of all falls of fair coins, those that split at least as unevenly."""
    falls = list(product((0, 1), repeat=one + other))
    return sum(abs(len(fall) - 2 * sum(fall)) >= abs(one - other) for fall in falls) / len(falls)


@pytest.mark.parametrize(("one", "other"), [(0, 0), (1, 0), (0, 5), (5, 0), (1, 6), (4, 4), (3, 7), (7, 3), (8, 2)])
def test_mcnemar_is_the_share_of_coins_that_fall_as_unevenly(one, other):
    assert mcnemar_p_value(one, other) == pytest.approx(coins_as_uneven(one, other), abs=1e-15)


def test_mcnemar_of_5_and_15_is_that_of_the_binomial_tables():
    assert mcnemar_p_value(5, 15) == 2 * (1 + 20 + 190 + 1140 + 4845 + 15504) / 2**20


def test_mcnemar_is_exact_where_powers_of_two_exceed_a_float():
    assert mcnemar_p_value(2500, 2700) == pytest.approx(0.005781442039116, abs=1e-15)  # scipy 1.17: binomtest


def all_means(differences, units):
    """Return the mean of every possible resample of units, in the plainest way."""
    units, differences = np.array(units), np.array(differences)
    members = [differences[units == unit] for unit in range(units.max() + 1)]
    return np.array([np.concatenate(drawn).mean() for drawn in product(members, repeat=len(members))])


def paired_bootstrap(differences, units, resamples, seed=1):
    return interval_of(resample_means(differences, Draw(units, resamples, seed)))


@pytest.mark.parametrize("differences", [[0.9, -0.35, 0.4, -0.12, 0.61, 0.07], [1.0, 0.0, 1.0, -1.0, 0.0, 1.0]])
def test_the_interval_and_p_value_are_those_of_all_possible_resamples(differences):
    means = all_means(differences, range(6))  # 6^6 = 46,656
    found = paired_bootstrap(np.array(differences), np.arange(6), resamples=200_000)
    assert found[:2] == pytest.approx(np.percentile(means, (2.5, 97.5)), abs=0.005)
    assert found.p_value == pytest.approx(2 * (means <= 0).mean(), abs=0.004)


def test_articles_are_drawn_whole_and_weigh_by_their_questions():
    differences, articles = [1.0, 0.4, 0.0, -0.5, 0.2, -0.3], [0, 1, 1, 2, 2, 2]
    means = all_means(differences, articles)  # 27, so that the lowest and highest hold more than 2.5% each
    found = paired_bootstrap(np.array(differences), np.array(articles), resamples=100_000)
    assert found[:2] == pytest.approx((means.min(), means.max()))
    assert found.p_value == pytest.approx(2 * (means <= 0).mean(), abs=0.01)


def test_a_lower_second_model_has_the_same_p_value():
    differences = np.array([0.9, -0.35, 0.4, -0.12, 0.61, 0.07])
    up, down = (paired_bootstrap(sign * differences, np.arange(6), resamples=100_000) for sign in (1, -1))
    assert down.p_value == pytest.approx(up.p_value, abs=0.006)
    assert (-down.high, -down.low) == pytest.approx((up.low, up.high), abs=0.01)


def test_equal_answers_differ_by_nothing():
    assert paired_bootstrap(np.zeros(50), np.arange(50), resamples=500) == (0.0, 0.0, 1.0)


def test_a_sum_that_is_0_but_for_rounding_is_0():
    assert sum([0.1, 0.2, -0.3]) != 0
    assert paired_bootstrap(np.array([0.1, 0.2, -0.3]), np.zeros(3, dtype=np.int64), resamples=500).p_value == 1


def test_a_p_value_is_never_0():
    assert paired_bootstrap(np.ones(50), np.arange(50), resamples=999).p_value == 2 / 1000


def test_a_seed_gives_the_same_interval_and_another_seed_another():
    differences = np.random.default_rng(0).normal(size=200)
    once, again, other = (paired_bootstrap(differences, np.arange(200), 1000, seed) for seed in (1, 1, 2))
    assert once == again
    assert once != other


def test_resampling_in_parts_changes_nothing(monkeypatch):
    differences = np.random.default_rng(0).normal(size=200)
    whole = paired_bootstrap(differences, np.arange(200), 1000)
    monkeypatch.setattr(bootstrap, "CELLS_AT_ONCE", 30_000)  # 150 resamples, then a rest of 100
    assert paired_bootstrap(differences, np.arange(200), 1000) == whole


def test_many_kinds_are_drawn_as_often_as_few(monkeypatch):
    counts = np.array([1, 2, 7])
    few = np.concatenate(list(draw_counts(counts, 20_000, seed=1)))
    monkeypatch.setattr(bootstrap, "MANY_KINDS", 2)
    many = np.concatenate(list(draw_counts(counts, 20_000, seed=1)))
    for drawn in (few, many):
        assert set(drawn.sum(axis=1)) == {10}
        assert drawn.mean(axis=0) == pytest.approx(counts, abs=0.05)
        assert drawn.var(axis=0) == pytest.approx(counts * (1 - counts / 10), abs=0.06)  # of a multinomial draw


def test_many_kinds_drawn_in_parts_are_the_same(monkeypatch):
    monkeypatch.setattr(bootstrap, "MANY_KINDS", 2)
    whole = np.concatenate(list(draw_counts(np.array([1, 2, 7]), 101, seed=1)))
    monkeypatch.setattr(bootstrap, "CELLS_AT_ONCE", 30)
    assert np.array_equal(np.concatenate(list(draw_counts(np.array([1, 2, 7]), 101, seed=1))), whole)


@pytest.mark.parametrize("step", [1.0, 0.1])  # whole numbers and others are summed in different ways
def test_sums_are_those_of_whole_units(step):
    parts = step * np.array([[1, 10], [2, 20], [3, 30], [4, 40]])
    sums = resample_sums(parts, np.array([0, 0, 1, 1]), 500, seed=1)
    assert {tuple(each) for each in np.round(sums.T / step, 6).tolist()} == {(6, 60), (10, 100), (14, 140)}


def test_resamples_without_a_value_are_left_out_of_interval_and_p_value():
    values = np.arange(-20.0, 80.0)
    assert interval_of(np.concatenate([values, [np.nan] * 7])) == interval_of(values)
    assert interval_of(values)[:2] == tuple(np.percentile(values, (2.5, 97.5)))
    assert interval_of(values).p_value == 2 * (21 + 1) / 101  # -20 to 0


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
