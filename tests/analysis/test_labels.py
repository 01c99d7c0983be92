import numpy as np
import pytest

from bertvision.analysis.labels import analyze_labels, mean_words, score_classes
from bertvision.errors import DataError
from bertvision.tasks.task import TextRow


def make_rows(golds, texts=("It's 3 cats.", "No")):
    return [TextRow(str(place), texts, int(gold)) for place, gold in enumerate(golds)]


def by_id(classes):
    return {str(place): int(each) for place, each in enumerate(classes)}


@pytest.fixture
def random():
    return np.random.default_rng(0)


def test_two_classes_are_scored_as_numpy_counts_them(random):
    golds, given = random.integers(0, 2, (2, 50))
    for positive in (0, 1):
        found = score_classes(make_rows(golds), by_id(given), 2, positive)
        assert found.accuracy == (golds == given).mean()
        assert found.positive.recall == (given[golds == positive] == positive).mean()
        assert found.positive.true_negative_rate == (given[golds != positive] != positive).mean()
        assert found.positive.positive_rate == (given == positive).mean()
        counts = ((golds == positive) & (given == positive)).sum(), ((golds != positive) & (given != positive)).sum()
        assert (found.positive.true_positives, found.positive.true_negatives) == counts


def test_more_classes_have_a_recall_each_and_no_positive_one(random):
    golds, given = random.integers(0, 3, (2, 60))
    found = score_classes(make_rows(golds), by_id(given), 4)
    assert found.recall_by_class[:3] == tuple((given[golds == each] == each).mean() for each in range(3))
    assert found.recall_by_class[3] is None  # nobody is of that class
    assert found.positive is None


def test_the_papers_numbers_come_out_of_their_counts():
    # SPEC 10.4, BERT on RTE: 277 rows, 115 true positives, 59 true negatives, recall .788, TN rate .450.
    golds = [1] * 146 + [0] * 131
    given = [1] * 115 + [0] * 31 + [0] * 59 + [1] * 72
    found = score_classes(make_rows(golds), by_id(given), 2)
    shares = found.accuracy, found.positive.recall, found.positive.true_negative_rate, found.positive.positive_rate
    assert [round(share, 3) for share in shares] == [0.628, 0.788, 0.450, 0.675]


def test_words_are_runs_of_letters():
    rows = [TextRow("0", ("It's 3 cats.", "Née"), 0), TextRow("1", ("", "A B"), 1)]
    assert mean_words(rows) == ((3 + 0) / 2, (2 + 2) / 2)  # it, s, cats; n, e


def test_lengths_are_those_of_what_each_model_gets_right():
    rows = [TextRow(str(words), ("w " * words, "v"), 1) for words in (1, 2, 4)]
    found = analyze_labels(rows, {"1": 1, "2": 0, "4": 1}, {"1": 0, "2": 0, "4": 0}, 2)
    assert found.mean_words == (7 / 3, 1.0)
    assert found.a.mean_words == (2.5, 1.0)
    assert found.b.mean_words == (None, None)
    assert found.b.positive.true_negative_rate is None  # there is no negative row


def test_disagreements_are_listed_in_the_order_of_the_rows():
    rows = make_rows([1, 0, 2])
    found = analyze_labels(rows, by_id([1, 1, 2]), by_id([0, 1, 0]), 3)
    assert [each[2:] for each in found.disagreements] == [(1, 1, 0), (2, 2, 0)]
    assert found.disagreements[0][:2] == ("0", rows[0].texts)


@pytest.mark.parametrize(
    ("rows", "given", "problem"),
    [
        (make_rows([1]), {}, "B: 1 rows are either not in the gold file or not predicted, such as '0'"),
        (make_rows([1]), {"0": 1, "zoo": 1}, "such as 'zoo'"),
        (make_rows([1]), {"0": 2}, "B: row '0' has class 2; expected 0 to 1"),
        ([TextRow("0", ("a",), None)], {"0": 1}, "1 of 1 rows have no class"),
        ([TextRow("0", ("a",), 0.5)], {"0": 1}, "1 of 1 rows have no class"),
        (make_rows([1]) * 2, {"0": 1}, "1 of 2 rows have no class of their own"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(rows, given, problem):
    with pytest.raises(DataError, match=problem) as caught:
        analyze_labels(rows, {"0": 1}, given, 2)
    assert "\n" not in str(caught.value)
