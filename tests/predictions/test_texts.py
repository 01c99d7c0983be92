import numpy as np
import pytest

from bertvision.predictions.logits import grid_of
from bertvision.predictions.texts import text_bounds, text_grid
from bertvision.windows.window import Window


def join(contexts, offsets_by_question):
    """Lay out one window per question: a first token, then tokens at these characters."""
    windows = [
        Window(number, np.zeros(len(offsets) + 1, dtype=np.int32), 1, np.array(offsets, dtype=np.int32))
        for number, offsets in enumerate(offsets_by_question)
    ]
    return text_grid(grid_of(windows, [f"q{number}" for number in range(len(windows))]), contexts)


def cut(grid, question, start, end):
    (bounds,) = text_bounds(grid, np.array([question]), np.array([start]), np.array([end])).tolist()
    return grid.text[slice(*bounds)]


def test_questions_about_one_context_share_its_text():
    grid = join(["old weir", "a mill", "old weir"], [[(0, 3), (4, 8)], [(0, 1), (2, 6)], [(0, 3), (4, 8)]])
    assert grid.text == "old weir\na mill\n"
    assert [cut(grid, 0, 2, 2), cut(grid, 1, 4, 5), cut(grid, 2, 7, 8)] == ["weir", "a mill", "old weir"]


@pytest.mark.parametrize(
    ("context", "offsets", "text"),
    [
        (" \tthe  weir \u00a0", [(0, 13)], "the  weir"),  # what str.strip takes away, inner blanks kept
        ("cafe\u0301\u0323 x", [(0, 4)], "cafe\u0301\u0323"),  # marks on a last letter, which a tokenizer left out
        ("weir", [(0, 4)], "weir"),
        ("cafe\u0301", [(0, 4)], "cafe\u0301"),  # at the end of the context
        ("x\U0001f600 y", [(0, 2)], "x\U0001f600"),
        ("x\ud800 y", [(0, 2)], "x\ud800"),  # half a character, which JSON files can hold
    ],
)
def test_a_text_has_its_marks_and_no_blanks_around_it(context, offsets, text):
    grid = join(["before", context, "\u0301 after"], [[(0, 6)], offsets, [(2, 7)]])
    assert cut(grid, 1, 3, 3) == text


def test_a_mark_that_begins_the_next_context_belongs_to_that():
    grid = join(["weir", "\u0301mill"], [[(0, 4)], [(0, 5)]])
    assert (cut(grid, 0, 1, 1), cut(grid, 1, 3, 3)) == ("weir", "\u0301mill")


def test_tokens_outside_the_context_and_tokens_of_blanks_bound_nothing():
    grid = join(["the \nweir", "\u3000a"], [[(0, 3), (3, 5), (4, 4), (4, 6)], [(0, 1), (0, 2)]])
    assert grid.can_bound.tolist() == [False, True, False, False, True, False, False, True]
