import pytest

from bertvision.errors import DataError
from bertvision.evaluate.compare import compare_predictions, units_of
from bertvision.kinds.kind import Golds
from bertvision.scoring.bootstrap import Draw
from bertvision.tasks import TASKS


def compare_answers(questions, a, b, metrics=("exact", "f1"), resample="question", resamples=10_000):
    golds = Golds("squad2", TASKS["squad2"], questions, ())
    return compare_predictions(golds, a, b, metrics, Draw(units_of(questions, resample), resamples, 1))


def test_both_scores_their_difference_and_who_is_right(questions, scored):
    a, b = scored("1887", "Hannah Coyle", "Leeds", ""), scored("1887", "Hannah Coyle of Leeds", "", "Leeds")
    found = compare_answers(questions, a, b, resamples=200)
    exact, f1 = found.differences
    assert (exact.metric, exact.a, exact.b, exact.difference) == ("exact", 50, 75, 25)
    assert (f1.metric, f1.b) == ("f1", 75)
    assert (f1.a, f1.difference) == pytest.approx((100 * (1 + 2 / 3 + 0 + 1) / 4, 75 - 200 / 3))
    assert {name: tuple(each) for name, each in found.outcomes.items()} == {
        "has answer": (1, 0, 1, 0),
        "no answer": (0, 1, 1, 0),
        "all": (1, 1, 2, 0),
    }
    assert found.mcnemar_p_value == 1  # 1 against 2: 3 coins always fall at least as unevenly


def test_the_interval_is_in_percent_and_of_the_second_minus_the_first(questions, scored):
    a, b = scored("", "", "Leeds", "Leeds"), scored("1887", "Hannah Coyle of Leeds", "", "")
    found = compare_answers(questions, a, b, metrics=("exact",), resamples=200)
    (exact,) = found.differences
    assert (exact.difference, exact.low, exact.high) == (100, 100, 100)
    assert found.mcnemar_p_value == 2 / 2**4  # four coins on one side


def test_a_group_without_questions_has_empty_cells(ask, scored, questions):
    answered, a = questions[:2], scored("1887", "", "", "")
    section = compare_answers(answered, a, a, resamples=200).as_page().tables[1]
    assert {name: cells for name, *cells in section.rows} == {
        "has answer": ["1", "0", "0", "1", "2"],
        "no answer": ["", "", "", "", "0"],
        "all": ["1", "0", "0", "1", "2"],
    }


def test_articles_are_resampled_whole(ask, scored, questions):
    a, b = scored("1887", "x", "x", ""), scored("1887", "x", "", "")
    titled = [ask(each.id, title=title) for each, title in zip(questions, "xxyy", strict=True)]
    found = compare_answers(titled, a, b, resample="article", resamples=2000)
    assert found.units == 2
    exact = found.differences[0]
    assert (exact.low, exact.high) == (0, 50)  # twice the first article, or twice the second


def test_a_single_article_cannot_be_resampled(questions, scored):
    a = scored("", "", "", "")
    with pytest.raises(DataError, match="single article"):
        compare_answers(questions, a, a, resample="article")
