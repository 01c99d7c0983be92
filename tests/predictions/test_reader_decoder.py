import numpy as np
import pytest

from bertvision.predictions.logits import TokenGrid
from bertvision.predictions.prediction import AnswerConfig
from bertvision.predictions.reader_decoder import pool_answers
from bertvision.predictions.texts import text_grid

CONTEXT = "in 1066 hannah coyle"
TOKENS = [(0, 2), (3, 6), (6, 7), (8, 14), (15, 17), (17, 20)]  # 106 6, co yle


def grid_of(tokens, context, windows=1):
    """Lay out windows of a first token and all tokens of the context."""
    offsets = np.array([(-1, -1), *tokens] * windows, np.int32)
    at = np.arange(windows + 1, dtype=np.int64) * (len(tokens) + 1)
    question_of, context_at = np.zeros(windows, np.int32), np.ones(windows, np.int32)
    return text_grid(TokenGrid(("q",), question_of, at, context_at, offsets), [context])


def logits_of(starts, ends):
    return np.array([starts, ends], np.float32).T


def texts_of(grid, pooled):
    return [grid.text[start:end] for start, end in pooled.spans.bounds[pooled.span_at].tolist()]


def test_answers_begin_and_end_at_words_however_the_tokens_score():
    grid = grid_of(TOKENS, CONTEXT)
    logits = logits_of([0, 0, 1, 9, 0, 2, 9], [0, 0, 9, 1, 0, 9, 2])  # best: "6" to "yle", and "106"
    pooled = pool_answers(grid, logits, AnswerConfig(n_best=20, max_answer_length=2), has_null=True)
    assert set(texts_of(grid, pooled)) <= {"in", "1066", "hannah", "coyle"}
    assert {"1066", "coyle"} <= set(texts_of(grid, pooled))


def test_overlapping_spans_are_one_answer_with_their_probabilities_added_up():
    grid = grid_of([(0, 3), (4, 8)], "the weir")
    logits = logits_of([1.0, 2.0, 0.5], [0.0, 0.0, 1.0])
    pooled = pool_answers(grid, logits, AnswerConfig(), has_null=True)
    shares = pooled.shares(threshold=0.5, temperature=2.0)
    # "the weir" is best, and both "the" and "weir" overlap it: e^3 + e^2 + e^1.5 before the temperature.
    answer, nothing = np.exp([3.0, 2.0, 1.5]).sum() ** 0.5, np.exp((1.0 + 0.0 - 0.5) / 2.0)
    assert texts_of(grid, pooled) == ["the weir"]
    assert shares.answers == pytest.approx([answer / (answer + nothing)], rel=1e-6)
    assert shares.nothing == pytest.approx([nothing / (answer + nothing)], rel=1e-6)
    assert shares.null_odds == pytest.approx([1.0 - np.log(np.exp([3.0, 2.0, 1.5]).sum())], rel=1e-6)


def test_a_span_that_two_windows_show_counts_once():
    logits = logits_of([0.0, 3.0, 0.0, 2.0], [0.0, 3.0, 0.0, 2.0])
    pooled = pool_answers(grid_of([(0, 4)], "weir", windows=2), logits, AnswerConfig(), has_null=True)
    assert pooled.spans.scores.tolist() == [6.0]


def test_an_endless_word_is_cut_at_tokens():
    tokens = [(place, place + 1) for place in range(6)]
    grid = grid_of(tokens, "aaaaaa")
    logits = logits_of([0.0] * 7, [0.0] * 7)
    pooled = pool_answers(grid, logits, AnswerConfig(max_answer_length=2), has_null=False)
    assert texts_of(grid, pooled)
    assert pooled.shares(0.0, 1.0).answers.sum() == pytest.approx(1.0)
