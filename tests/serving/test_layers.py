import numpy as np
import pytest

from bertvision.serving.layers import LayerMeans, QuestionParts, mean_parts

NAMES = ("layer 0", "layer 1", "skip", "bias")
BEST = np.array([[1.0, 2, 3, 0.5], [3, -2, 1, 0.5]])
NULL = np.array([[2.0, 0, 0, 0.5], [1, 0, 4, 0.5]])
NOTHING = np.zeros((0, 4))


def make(found, weights=None, is_impossible=None):
    parts, total = mean_parts(NAMES, weights, found, is_impossible)
    return LayerMeans("out/heads/1/h", "h", "dev.json", len(found.best), len(found.gold), parts, total)


def test_parts_are_averaged_and_their_sum_is_the_mean_score():
    found = make(QuestionParts(BEST, BEST[:1], NULL), weights=[0.25, 0.75])
    assert [each.best for each in found.parts] == [2, 0, 2, 0.5]
    assert [each.gold for each in found.parts] == [1, 2, 3, 0.5]
    assert [each.null for each in found.parts] == [1.5, 0, 2, 0.5]
    assert [each.difference for each in found.parts] == [0.5, 0, 0, 0]
    assert [each.weight for each in found.parts] == [0.25, 0.75, None, None]
    assert (found.total.best, found.total.null, found.total.difference) == (4.5, 4, 0.5)
    assert found.total.best == BEST.sum(axis=1).mean()


def test_kinds_of_questions_are_averaged_apart():
    found = make(QuestionParts(BEST, NOTHING, NULL), is_impossible=np.array([False, True]))
    assert [each.has_answer for each in found.parts] == [-1, 2, 3, 0]
    assert [each.no_answer for each in found.parts] == [2, -2, -3, 0]
    assert [each.has_minus_no_answer for each in found.parts] == [-3, 4, 6, 0]
    assert [section.title for section in found.as_page().tables] == [
        "What each layer says",
        "Which layer tells answerable questions from others",
    ]


def test_what_cannot_be_averaged_stays_absent():
    found = make(QuestionParts(BEST, NOTHING, NULL), is_impossible=np.array([False, False]))
    assert (found.total.gold, found.total.no_answer, found.total.has_minus_no_answer) == (None, None, None)
    (section,) = found.as_page().tables
    assert section.header[:-1] == ("part", "best", "none", "best-none")
    assert make(QuestionParts(BEST, NOTHING, None)).as_page().tables[0].header[:-1] == ("part", "best")


def test_a_bar_points_to_what_its_layer_speaks_for():
    null = np.array([[0.0, 0, 0, 0]])
    section = make(QuestionParts(np.array([[4.0, -2, 0.1, 0]]), NOTHING, null)).as_page().tables[0]
    assert section.header[-1] == "   against│for       "
    assert [row[-1] for row in section.rows] == [
        "··········│██████████",
        "·····█████│··········",
        "··········│··········",
        "··········│··········",
        "",
    ]
    assert section.rows[-1][:-1] == ("sum", "+2.100", "+0.000", "+2.100")


def test_a_head_that_says_nothing_has_no_bars():
    section = make(QuestionParts(np.zeros((1, 4)), NOTHING, np.zeros((1, 4)))).as_page().tables[0]
    assert {row[-1] for row in section.rows} == {"··········│··········", ""}


@pytest.mark.parametrize("size", [1e-3, 99])
def test_tables_fit_into_80_columns(size):
    found = make(QuestionParts(-size * BEST, size * BEST, NULL), [0.25, 0.75], np.array([False, True]))
    for section in found.as_page().tables:
        columns = zip(section.header, *section.rows, strict=True)
        assert sum(2 + max(map(len, column)) for column in columns) - 2 <= 80
