import numpy as np
import pytest

from bertvision.data.example import Question
from bertvision.predictions.logits import TokenGrid, grid_of
from bertvision.scoring.label_tables import count_context_pieces
from bertvision.windows.window import WindowConfig, cut_windows


@pytest.mark.parametrize("stride", [0, 1, 5])
def test_tokens_that_windows_share_are_counted_once(tokenizer, stride):
    contexts = ["the weir", "the stone weir was built in 1887 by hannah coyle. " * 5, "by coyle in the river " * 4]
    asked = [Question(str(number), "when?", context, (), "") for number, context in enumerate(contexts)]
    windows = cut_windows(asked, tokenizer, WindowConfig(max_length=20, stride=stride))
    assert len(windows) > 2 * len(asked)
    lengths = [len(tokenizer(context, add_special_tokens=False)["input_ids"]) for context in contexts]
    grid = grid_of(windows, [each.id for each in asked])
    assert count_context_pieces(grid) == dict(zip("012", lengths, strict=True))


def test_pieces_of_one_character_are_counted_each():
    offsets = [(-1, -1), (0, 1), (1, 2), (1, 2), (1, 2)], [(-1, -1), (1, 2), (1, 2), (2, 3)]  # two of five are shared
    grid = TokenGrid(
        question_ids=("q",),
        question_of=np.zeros(2, np.int32),
        window_at=np.array([0, 5, 9]),
        context_at=np.ones(2, np.int32),
        offsets=np.array([*offsets[0], *offsets[1]], np.int32),
    )
    assert count_context_pieces(grid) == {"q": 5}
