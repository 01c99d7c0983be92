import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.predictions.ensemble import combine_logits
from bertvision.predictions.logits import grid_of
from bertvision.windows.window import Window
from studies.paper_scores import decode_pieces, piece_f1, score_pieces


@pytest.mark.parametrize(
    ("gold", "answer", "f1"),
    [
        ((5, 6, 7), (5, 6, 7), 1.0),
        ((5, 6, 7), (7, 5, 6), 1.0),  # a bag has no order
        # 2 shared of 3 answered and of 4 gold: 2 * 2/3 * 2/4 / (2/3 + 2/4) = 4/7.
        ((5, 6, 7, 8), (5, 6, 9), 4 / 7),
        # 5 is shared twice, not three times: precision 2/3, recall 2/2.
        ((5, 5), (5, 5, 5), 2 * (2 / 3) * 1 / (2 / 3 + 1)),
        ((5,), (6,), 0.0),
        ((5,), (), 0.0),
        ((), (5,), 0.0),
        ((), (), 1.0),
    ],
)
def test_f1_compares_bags_of_pieces(gold, answer, f1):
    assert piece_f1(gold, answer) == pytest.approx(f1)


def test_scores_are_percentages_of_the_best_gold_over_all_questions():
    golds = [[(5, 6), (5,)], [(7, 8, 9)], [()], [()]]
    answers = [(5,), (8, 7, 9), (), (4,)]
    # Exact: the second gold, not the same order, rightly none, not none. F1: the same, but order does not count.
    scores = score_pieces(golds, answers)
    assert (scores["paper_v1_exact"], scores["paper_v1_f1"]) == (50.0, 75.0)


def test_exact_matches_are_also_counted_by_type_of_question():
    golds = [[(5,), (6,)], [(7,)], [(8,)], [()], [()]]
    answers = [(6,), (), (7,), (), (5,)]
    scores = score_pieces(golds, answers)
    assert scores["paper_v1_exact"] == pytest.approx(40)
    assert scores["paper_v1_HasAns_exact"] == pytest.approx(100 / 3)
    assert scores["paper_v1_NoAns_exact"] == 50
    assert "paper_v1_NoAns_exact" not in score_pieces(golds[:3], answers[:3])


def test_the_f1_of_a_question_is_that_of_its_best_gold():
    assert score_pieces([[(5, 6, 7), (5, 6)]], [(5,)])["paper_v1_f1"] == pytest.approx(100 * 2 / 3)  # 1 of 1, 1 of 2


def test_every_question_needs_an_answer():
    with pytest.raises(ValueError, match="zip"):
        score_pieces([[(5,)], [()]], [(5,)])


CLS, SEP = 101, 102
# [CLS] 7 [SEP] 11 12 13 [SEP]: a question of one token and a context of three.
PIECES = (CLS, 7, SEP, 11, 12, 13, SEP)
# Lengths of each question's windows.
shapes = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=4)


def make_windows(*pieces_by_window, questions=None):
    """Make a grid of windows of given pieces, by default all of one question, and their pieces side by side."""
    questions = questions or [0] * len(pieces_by_window)
    windows = [
        Window(question, np.array(pieces, np.int32), len(pieces), np.zeros((0, 2), np.int32))
        for question, pieces in zip(questions, pieces_by_window, strict=True)
    ]
    grid = grid_of(windows, [f"q{number}" for number in range(questions[-1] + 1)])
    return grid, np.concatenate([window.ids for window in windows])


def peaked(length, start, end, height=5.0):
    """Return logits of 0 with one peak for the start and one for the end."""
    logits = np.zeros((length, 2), np.float32)
    logits[start, 0] = logits[end, 1] = height
    return logits


@pytest.mark.parametrize(
    ("start", "end", "answer"),
    [
        (3, 4, (11, 12)),
        (5, 5, (13,)),
        (0, 0, ()),  # the first token alone
        (4, 3, ()),  # the end before the start
        (4, 0, ()),
        (0, 3, (CLS, 7, SEP, 11)),  # the original gave the special token away too
        (1, 1, (7,)),  # the question may answer itself
        (2, 6, (SEP, 11, 12, 13, SEP)),
        (6, 6, (SEP,)),  # a special token that is not the first one is an answer
    ],
)
def test_an_answer_is_what_stands_between_the_highest_start_and_the_highest_end(start, end, answer):
    grid, pieces = make_windows(PIECES)
    assert decode_pieces(grid, pieces, peaked(7, start, end)) == [answer]


def test_an_answer_may_be_as_long_as_its_window():
    grid, pieces = make_windows(range(300))
    assert decode_pieces(grid, pieces, peaked(300, 1, 299)) == [tuple(range(1, 300))]


def test_the_first_of_equal_logits_counts():
    grid, pieces = make_windows(PIECES)
    logits = np.zeros((7, 2), np.float32)
    logits[[3, 5], 0] = logits[[4, 5], 1] = 2.0
    assert decode_pieces(grid, pieces, logits) == [(11, 12)]


def test_a_question_takes_the_window_whose_product_of_probabilities_is_highest():
    grid, pieces = make_windows(PIECES, PIECES, (CLS, 8, SEP), questions=[0, 0, 1])
    # Higher logits, but on a high plain: the second window is less sure.
    logits = np.concatenate([peaked(7, 3, 4, 5.0), peaked(7, 5, 5, 4.0) + 90, peaked(3, 1, 1)])
    assert decode_pieces(grid, pieces, logits) == [(11, 12), (8,)]


def test_a_window_that_is_sure_of_no_answer_beats_one_that_has_an_answer():
    grid, pieces = make_windows(PIECES, PIECES)
    logits = np.concatenate([peaked(7, 3, 4, 5.0), peaked(7, 0, 0, 6.0)])
    assert decode_pieces(grid, pieces, logits) == [()]


def test_the_largest_probabilities_of_an_ensemble_are_used_as_they_are():
    # Start and end alike. In the first window the members are sure of different tokens, so that the largest are .05,
    # .9 and .85, in sum 1.8; in the second both give .8 to the last token. As they are, .9 * .9 > .8 * .8; after
    # another softmax, (.9 / 1.8)^2 < (.8 / 1)^2.
    grid, pieces = make_windows((CLS, 11, 12), (CLS, 21, 22))
    one = np.log(np.array([0.05, 0.9, 0.05, 0.1, 0.1, 0.8], np.float32))
    other = np.log(np.array([0.05, 0.1, 0.85, 0.1, 0.1, 0.8], np.float32))
    combined = combine_logits(grid, [np.stack([each, each], axis=1) for each in (one, other)], "max")
    assert decode_pieces(grid, pieces, combined, are_log_probabilities=True) == [(11,)]
    assert decode_pieces(grid, pieces, combined) == [(22,)]


def softmax(logits):
    weights = [math.exp(each - max(logits)) for each in logits]
    return [each / sum(weights) for each in weights]


def in_a_loop(windows):
    """Answer one question from (pieces, starts, ends) of its windows, as SPEC 4.2 words it."""
    best = None
    for pieces, starts, ends in windows:
        start, end = starts.index(max(starts)), ends.index(max(ends))
        answer = [] if end < start else list(pieces[start : end + 1])
        if answer == [CLS]:
            answer = []
        score = max(softmax(starts)) * max(softmax(ends))
        if best is None or score > best[0]:
            best = (score, tuple(answer))
    return best[1]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(shape=shapes, seed=st.integers(0, 2**32 - 1), spread=st.sampled_from([0.5, 2.0, 6.0]))
def test_answers_are_those_of_a_loop(shape, seed, spread):
    random = np.random.default_rng(seed)
    questions = [number for number, lengths in enumerate(shape) for _ in lengths]
    rows = [(CLS, *random.integers(200, 205, length - 1).tolist()) for lengths in shape for length in lengths]
    grid, pieces = make_windows(*rows, questions=questions)
    logits = random.normal(0, spread, (len(pieces), 2)).astype(np.float32)
    windows = [[] for _ in shape]
    for number, (question, row) in enumerate(zip(questions, rows, strict=True)):
        own = logits[grid.window_at[number] : grid.window_at[number + 1]]
        windows[question].append((row, *own.T.tolist()))
    assert decode_pieces(grid, pieces, logits) == [in_a_loop(each) for each in windows]
