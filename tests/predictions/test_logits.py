import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from bertvision.errors import FolderError
from bertvision.predictions.logits import TokenGrid, grid_of, load_logits, save_logits, text_bounds, text_grid
from bertvision.windows.window import Window

# Two questions: the first has two windows of three and two tokens, the second one of four.
TENSORS = {
    "question_of": np.array([0, 0, 1], np.int32),
    "window_at": np.array([0, 3, 5, 9], np.int64),
    "context_at": np.array([1, 1, 2], np.int32),
    "offsets": np.array([[-1, -1], [0, 3], [4, 8], [-1, -1], [4, 8], [-1, -1], [-1, -1], [0, 2], [3, 5]], np.int32),
}
LOGITS = np.linspace(-1, 1, 18, dtype=np.float32).reshape(9, 2)


def write(path):
    save_logits(path, TokenGrid(("q1", "q2"), **TENSORS), LOGITS)
    return path


def test_logits_come_back_as_they_were_saved(tmp_path):
    grid, logits = load_logits(write(tmp_path / "logits.safetensors"))
    assert np.array_equal(logits, LOGITS)
    assert grid.question_ids == ("q1", "q2")
    assert all(np.array_equal(getattr(grid, name), value) for name, value in TENSORS.items())


def changed(name, place, value):
    tensor = TENSORS[name].copy()
    tensor[place] = value
    return {name: tensor}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (changed("question_of", 2, 7), "questions that there are none of"),
        (changed("question_of", 1, 1) | {"ids": ("q1",)}, "questions that there are none of"),
        (changed("question_of", 0, 1), "out of order"),
        (changed("question_of", 0, -(2**31)), "questions that there are none of"),
        (changed("window_at", 1, 2**40), "not one after the other"),
        (changed("window_at", 3, 8), "not one after the other"),
        (changed("window_at", 0, 1), "not one after the other"),
        (changed("context_at", 1, 9), "contexts that begin outside"),
        (changed("context_at", 1, -1), "contexts that begin outside"),
        (changed("offsets", (1, 0), 2**30), "tokens that end before they begin"),
        (changed("offsets", (1, 0), -5), "tokens that end before they begin"),
        ({"offsets": TENSORS["offsets"][:8]}, "tensors of other sizes"),
        ({"context_at": TENSORS["context_at"][:2]}, "tensors of other sizes"),
        ({"logits": LOGITS[:, :1]}, "tensors of other sizes"),
        ({"logits": LOGITS.ravel()}, "tensors of other sizes"),
        ({"logits": LOGITS.astype(np.float64)}, "numbers of another type"),
        ({"ids": ("q1", "q1")}, "one twice"),
    ],
)
def test_logits_that_do_not_fit_their_grid_are_refused(tmp_path, changes, problem):
    tensors = {"ids": ("q1", "q2"), **TENSORS, "logits": LOGITS, **changes}
    ids = tensors.pop("ids")
    path = tmp_path / "logits.safetensors"
    save_file(tensors, path, metadata={"question_ids": json.dumps(ids)})
    with pytest.raises(FolderError, match=problem) as caught:
        load_logits(path)
    assert "\n" not in str(caught.value)


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
