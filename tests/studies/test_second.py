import numpy as np
import pytest

from bertvision.errors import DataError
from bertvision.predictions.logits import TokenGrid
from studies.second import OUTSIDE, mask_peaks, paper_answers

# One window of six tokens: first token, question, separator, then "old", "weir", "mill" of the context.
CONTEXT = "old weir mill"
OFFSETS = [(-1, -1), (-1, -1), (-1, -1), (0, 3), (4, 8), (9, 13)]


def lay_out(*windows_of):
    """Make a grid in which each question has so many windows of the six tokens."""
    question_of = np.repeat(np.arange(len(windows_of), dtype=np.int32), windows_of)
    count = len(question_of)
    return TokenGrid(
        tuple(f"q{number}" for number in range(len(windows_of))),
        question_of,
        np.arange(count + 1, dtype=np.int64) * 6,
        np.full(count, 3, dtype=np.int32),
        np.array(OFFSETS * count, dtype=np.int32),
    )


def peaks(starts, ends):
    """Rank tokens: the listed ones have the highest logits, falling by 1."""
    logits = np.zeros((6, 2), dtype=np.float32)
    for column, tokens in enumerate((starts, ends)):
        logits[list(tokens), column] = np.arange(9, 9 - len(tokens), -1)
    return logits


@pytest.mark.parametrize(
    ("starts", "ends", "first", "second"),
    [
        ((3, 4), (4, 5), "old weir", "weir mill"),
        ((4, 5), (5, 4), "weir mill", ""),  # the second end stands before the second start
        ((0, 4), (0, 4), "", "weir"),
        ((0, 4), (3, 4), f"{OUTSIDE} old", "weir"),  # from the first token on
        ((1, 4), (1, 4), f"{OUTSIDE} ", "weir"),  # the question itself
        ((4, 5), (3, 4), "", ""),  # right twice where there is no answer
    ],
)
def test_the_papers_way_masks_both_peaks_and_decodes_again(starts, ends, first, second):
    assert paper_answers(lay_out(1), peaks(starts, ends), {"q0": CONTEXT}) == ({"q0": first}, {"q0": second})


def test_every_window_is_masked_and_the_logits_given_stay_as_they_are():
    logits = np.concatenate([peaks((3,), (4,)), peaks((5,), (5,))])
    before = logits.copy()
    masked = mask_peaks(lay_out(1, 1), logits)
    assert np.argwhere(masked == -1000).tolist() == [[3, 0], [4, 1], [11, 0], [11, 1]]
    assert np.array_equal(logits, before)
    assert np.array_equal(masked[masked != -1000], before[masked != -1000])


def test_each_question_keeps_its_own_context_and_its_surest_window():
    unsure, sure = peaks((3,), (3,)), 5 * peaks((5,), (5,))
    firsts, _ = paper_answers(
        lay_out(2, 1), np.concatenate([unsure, sure, unsure]), {"q0": CONTEXT, "q1": "new weir mill"}
    )
    assert firsts == {"q0": "mill", "q1": "new"}


def test_windows_of_another_context_are_refused():
    with pytest.raises(DataError, match="'q0': its windows are of another context"):
        paper_answers(lay_out(1), peaks((5,), (5,)), {"q0": "short"})
