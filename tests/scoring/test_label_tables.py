import numpy as np
import pytest

from bertvision.scoring.label_tables import class_section, confusion_section, mean_words, positive_class, score_classes

TWO, FOUR = ("no", "yes"), ("a", "b", "c", "d")
TEXTS = ("It's 3 cats.", "No")


def score(golds, given, labels=TWO, texts=None):
    rows = [TEXTS] * len(golds) if texts is None else texts
    return score_classes(rows, [int(each) for each in golds], [int(each) for each in given], labels)


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.mark.parametrize(("labels", "positive"), [(TWO, 1), (("entailment", "not_entailment"), 0)])
def test_two_classes_are_scored_as_numpy_counts_them(random, labels, positive):
    golds, given = random.integers(0, 2, (2, 50))
    found = score(golds, given, labels)
    assert found.accuracy == (golds == given).mean()
    assert found.positive.name == labels[positive]
    assert found.positive.recall == (given[golds == positive] == positive).mean()
    assert found.positive.true_negative_rate == (given[golds != positive] != positive).mean()
    assert found.positive.positive_rate == (given == positive).mean()
    counts = ((golds == positive) & (given == positive)).sum(), ((golds != positive) & (given != positive)).sum()
    assert (found.positive.true_positives, found.positive.true_negatives) == counts


@pytest.mark.parametrize(
    ("labels", "positive"),
    [
        (("entailment", "not_entailment"), 0),
        (("not_entailment", "entailment"), 1),
        (("not_equivalent", "equivalent"), 1),
        (("unacceptable", "acceptable"), 1),
        (("1 star", "5 stars"), 1),
    ],
)
def test_the_positive_class_is_the_one_that_is_named_so_or_the_second(labels, positive):
    assert positive_class(labels) == positive


def test_more_classes_have_no_positive_one_and_are_counted_by_what_they_are_taken_for(random):
    golds, given = random.integers(0, 3, (2, 60))
    found = score(golds, given, FOUR)
    assert found.positive is None
    assert [list(row.values()) for row in found.confusions.values()] == [
        [((golds == gold) & (given == each)).sum() for each in range(4)] for gold in range(4)
    ]


def test_the_papers_numbers_come_out_of_their_counts():
    # SPEC 10.4, BERT on RTE: 277 rows, 115 true positives, 59 true negatives, recall .788, TN rate .450.
    golds = [1] * 146 + [0] * 131
    given = [1] * 115 + [0] * 31 + [0] * 59 + [1] * 72
    found = score(golds, given)
    shares = found.accuracy, found.positive.recall, found.positive.true_negative_rate, found.positive.positive_rate
    assert [round(share, 3) for share in shares] == [0.628, 0.788, 0.450, 0.675]


def test_words_are_runs_of_letters():
    assert mean_words([("It's 3 cats.", "Née"), ("", "A B")], 2) == ((3 + 0) / 2, (2 + 2) / 2)  # it, s, cats; n, e


def test_lengths_are_those_of_what_a_model_gets_right():
    texts = [("w " * words, "v") for words in (1, 2, 4)]
    assert score([1, 1, 1], [1, 0, 1], texts=texts).mean_words == (2.5, 1.0)
    nothing = score([1, 1, 1], [0, 0, 0], texts=texts)
    assert nothing.mean_words == (None, None)
    assert nothing.positive.true_negative_rate is None  # there is no negative row


def test_the_table_has_a_column_for_each_model_and_one_for_all_rows():
    models = {"A": score([1, 0], [1, 0]), "B": score([1, 0], [0, 1])}
    rows = {name: cells for name, *cells in class_section(models, ("text 1", "text 2"), (3.0, None)).rows}
    assert rows["right"] == ["2", "0", ""]
    assert rows["true positives (yes)"] == ["1", "0", ""]
    assert rows["mean words of text 1, where right"] == ["3.0", "", "3.0"]
    assert rows["mean words of text 2, where right"] == ["1.0", "", ""]


def test_few_classes_have_a_table_of_confusions_and_many_a_list_of_the_commonest():
    few = confusion_section("A", score([0, 1, 1], [1, 1, 0], ("an overlong label", "yes")))
    assert few.header == ("gold", "an overlo…", "yes")
    assert few.rows == (("an overlong label", "0", "1"), ("yes", "1", "1"))
    many = confusion_section("A", score([0, 0, 5, 5, 5], [0, 1, 4, 4, 5], tuple("abcdef")))
    assert many.rows == (("f -> e", "2"), ("a -> b", "1"))
