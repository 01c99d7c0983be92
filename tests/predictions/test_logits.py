import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from bertvision.errors import FolderError
from bertvision.predictions.logits import TokenGrid, load_logits, save_logits

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
