"""Every score of resamples, against the plainest arithmetic on the resampled rows themselves."""

import math
from collections import Counter

import numpy as np
import pytest

from bertvision.scoring import bootstrap
from bertvision.scoring.bootstrap import draw_counts
from bertvision.scoring.metrics import ROW_SCORES, TAG_SCORES, resample_spearman, score_tags


def f1(pairs, label=1):
    right = sum(gold == found == label for gold, found in pairs)
    either = sum(gold == label for gold, _ in pairs) + sum(found == label for _, found in pairs)
    return 200 * right / either if either else math.nan


def matthews(pairs):
    counts = Counter(pairs)
    tp, tn, fp, fn = (counts[pair] for pair in ((1, 1), (0, 0), (0, 1), (1, 0)))
    sides = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    return 100 * (tp * tn - fp * fn) / math.sqrt(sides) if sides else 0.0


def macro_f1(pairs):
    return np.mean([f1(pairs, label) for label in {label for pair in pairs for label in pair}])


def accuracy(pairs):
    return 100 * sum(gold == found for gold, found in pairs) / len(pairs)


def pearson(pairs):
    gold, found = zip(*pairs, strict=True)
    return math.nan if len(set(gold)) == 1 or len(set(found)) == 1 else 100 * np.corrcoef(gold, found)[0, 1]


def spearman(pairs):
    sides = zip(*pairs, strict=True)
    return pearson(list(zip(*([ranks(side) for side in sides]), strict=True)))


def ranks(values):
    ordered = sorted(values)
    return [ordered.index(each) + (ordered.count(each) + 1) / 2 for each in values]


def rmse(pairs):
    return math.sqrt(sum((gold - found) ** 2 for gold, found in pairs) / len(pairs))


def mae(pairs):
    return sum(abs(gold - found) for gold, found in pairs) / len(pairs)


@pytest.fixture
def random():
    return np.random.default_rng(0)


def scores_of_resamples(score, gold, found, resampled):
    """Score resamples, given as the rows that are drawn, by their sums."""
    parts = score.parts(gold, found)
    return score.score(np.stack([parts[rows].sum(axis=0) for rows in resampled], axis=1))


def drawn_rows(random, rows, resamples=200):
    return random.integers(0, rows, (resamples, rows))


@pytest.mark.parametrize(
    ("name", "plain", "classes"),
    [("accuracy", accuracy, 3), ("f1", f1, 2), ("matthews", matthews, 2), ("macro_f1", macro_f1, 4)],
)
@pytest.mark.parametrize("rows", [5, 40])  # 5: resamples that lack a class are among them
def test_scores_of_classes_are_those_of_the_resampled_rows(random, name, plain, classes, rows):
    gold, guess = random.integers(0, classes, (2, rows))
    found = np.where(np.arange(rows) % 3 == 0, guess, gold)
    resampled = drawn_rows(random, rows)
    expected = [plain(list(zip(gold[each].tolist(), found[each].tolist(), strict=True))) for each in resampled]
    assert scores_of_resamples(ROW_SCORES[name], gold, found, resampled) == pytest.approx(expected, nan_ok=True)


def test_an_f1_without_any_of_its_class_has_no_value_and_matthews_is_0():
    gold, found, resampled = np.array([1, 0]), np.array([1, 0]), [[1, 1]]
    assert np.isnan(scores_of_resamples(ROW_SCORES["f1"], gold, found, resampled)).all()
    assert scores_of_resamples(ROW_SCORES["matthews"], gold, found, resampled) == [0]


@pytest.mark.parametrize(("name", "plain"), [("pearson", pearson), ("rmse", rmse), ("mae", mae)])
@pytest.mark.parametrize("offset", [0, 1e6])  # large numbers must not lose the digits that differ
def test_scores_of_numbers_are_those_of_the_resampled_rows(random, name, plain, offset):
    gold = np.round(random.uniform(0, 5, 6), 1) + offset
    found = gold + random.normal(size=6)
    gold[1] = gold[0]
    alike = [[2] * 6, [0, 1] * 3]  # all equal, and equal golds alone
    resampled = np.concatenate([drawn_rows(random, 6), alike])
    expected = [plain(list(zip(gold[each].tolist(), found[each].tolist(), strict=True))) for each in resampled]
    assert scores_of_resamples(ROW_SCORES[name], gold, found, resampled) == pytest.approx(expected, nan_ok=True)


def test_scores_of_label_sets_are_those_of_the_resampled_rows(random):
    gold, found = random.integers(0, 2, (2, 8, 3))
    resampled = drawn_rows(random, 8)
    for rows, micro, macro, exact in zip(
        resampled,
        *(scores_of_resamples(ROW_SCORES[name], gold, found, resampled) for name in ("micro_f1", "macro_f1", "exact")),
        strict=True,
    ):
        one, other = gold[rows], found[rows]
        assert micro == pytest.approx(f1(list(zip(one.ravel().tolist(), other.ravel().tolist(), strict=True))))
        by_label = [f1(list(zip(x.tolist(), y.tolist(), strict=True))) for x, y in zip(one.T, other.T, strict=True)]
        assert macro == pytest.approx(np.nanmean(by_label))
        assert exact == pytest.approx(100 * np.mean([(x == y).all() for x, y in zip(one, other, strict=True)]))


def test_scores_of_tags_are_conllevals_of_the_resampled_sentences(random):
    gold = [("B-PER", "O"), ("O", "O", "O"), ("B-LOC", "B-LOC"), ("B-ORG", "I-ORG")]
    found = [("B-PER", "B-PER"), ("O", "O", "B-LOC"), ("O", "B-LOC"), ("B-ORG", "O")]
    golds, founds = np.array([(1, 2), (0, 3), (2, 2), (1, 2)]), np.array([(1, 2, 1), (0, 1, 2), (1, 1, 1), (0, 1, 1)])
    resampled = np.concatenate([drawn_rows(random, 4), [[1] * 4]])  # the last has nothing to find
    expected = [score_tags([gold[row] for row in rows], [found[row] for row in rows]) for rows in resampled]
    for name, score in TAG_SCORES.items():
        assert scores_of_resamples(score, golds, founds, resampled) == pytest.approx([each[name] for each in expected])


@pytest.mark.parametrize("many_kinds", [1000, 5])
def test_spearman_is_that_of_the_resampled_rows(random, monkeypatch, many_kinds):
    monkeypatch.setattr(bootstrap, "MANY_KINDS", many_kinds)
    gold = np.array([1.0, 2.0, 2.0, 4.0, 5.0, 5.0, 7.0])
    a, b = np.round(gold + random.normal(size=7), 0), gold + random.normal(size=7)
    drawn = np.concatenate(list(draw_counts(np.ones(7, dtype=np.int64), 100, seed=3))).astype(int)
    for side, given in zip(resample_spearman(gold, (a, b), 100, 3), (a, b), strict=True):
        expected = [
            spearman(list(zip(np.repeat(gold, counts).tolist(), np.repeat(given, counts).tolist(), strict=True)))
            for counts in drawn
        ]
        assert side == pytest.approx(expected, nan_ok=True)


def test_spearman_of_equal_numbers_has_no_value(random):
    found = resample_spearman(np.arange(5.0), (np.ones(5), np.arange(5.0)), 50, 1)
    assert np.isnan(found[0]).all()
    assert not np.isnan(found[1]).all()
