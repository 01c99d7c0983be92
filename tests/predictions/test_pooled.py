import itertools
import math

import numpy as np
import pytest

from bertvision.predictions.logits import TokenGrid, text_grid
from bertvision.predictions.pooled import OWN_NULL, inside_words, pool_answers
from bertvision.predictions.prediction import AnswerConfig

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


# Windows of a long text

WORDS = [f"w{number}" for number in range(12)]
LONG = " ".join(WORDS)
PLACES = [(LONG.index(word), LONG.index(word) + len(word)) for word in WORDS[:10]]


def windows_of(counts, size=2):
    """Lay out questions of so many windows of one text, each with a first token and the next words."""
    firsts = [first for count in counts for first in range(0, size * count, size)]
    offsets = [place for first in firsts for place in [(-1, -1), *PLACES[first : first + size]]]
    at = np.arange(len(firsts) + 1, dtype=np.int64) * (size + 1)
    question_of = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    names = tuple(f"q{number}" for number in range(len(counts)))
    tokens = TokenGrid(names, question_of, at, np.ones(len(firsts), np.int32), np.array(offsets, np.int32))
    return text_grid(tokens, [LONG] * len(counts))


def drawn(grid, seed):
    return np.random.default_rng(seed).normal(0, 2, (len(grid.tokens.offsets), 2)).astype(np.float32)


def enumerated(logits, windows, size, threshold, temperature, own_null):
    """Return the probabilities of all words and of "no answer", window by window, span by span (of one token each)."""
    table = logits.astype(np.float64).reshape(windows, size + 1, 2)
    lowest = min(start + end for start, end in table[:, 0])
    scores = {}
    for window, place in itertools.product(range(windows), range(size)):
        excess = sum(table[window, 0]) - lowest
        scores[WORDS[window * size + place]] = sum(table[window, place + 1]) - own_null * excess
    nothing = lowest - threshold
    powers = {word: math.exp(score / temperature) for word, score in scores.items()}
    total = sum(powers.values()) + math.exp(nothing / temperature)
    return {word: power / total for word, power in powers.items()}, math.exp(nothing / temperature) / total


@pytest.mark.parametrize("own_null", [OWN_NULL, 0.0, 0.5])
@pytest.mark.parametrize("windows", [1, 2, 5])
def test_spans_of_all_windows_share_one_softmax_each_above_the_null_score_of_its_own(own_null, windows):
    grid = windows_of([windows])
    logits = drawn(grid, windows)
    pooled = pool_answers(grid, logits, AnswerConfig(max_answer_length=1), has_null=True, own_null=own_null)
    shares = pooled.shares(threshold=-1.0, temperature=1.5)
    expected, nothing = enumerated(logits, windows, 2, -1.0, 1.5, own_null)
    assert dict(zip(texts_of(grid, pooled), shares.answers.tolist(), strict=True)) == pytest.approx(expected, rel=1e-5)
    assert shares.nothing.tolist() == pytest.approx([nothing], rel=1e-5)
    best = max(expected, key=expected.get)
    assert texts_of(grid, pooled)[shares.best[0]] == best
    # The odds are those of the probabilities, without threshold and temperature.
    assert shares.null_odds[0] == pytest.approx(1.5 * math.log(nothing / expected[best]) - 1.0, rel=1e-4, abs=1e-4)


def test_a_window_that_is_sure_of_no_answer_loses_to_one_that_is_not():
    grid = windows_of([2])
    # w0 scores 8, 2 below the "no answer" of its window; w2 scores 6, 3 above that of its own.
    logits = logits_of([10.0, 8.0, -9.0, 3.0, 6.0, -9.0], [0.0] * 6)
    joint, raw = (
        pool_answers(grid, logits, AnswerConfig(max_answer_length=1), has_null=True, own_null=each)
        for each in (OWN_NULL, 0.0)
    )
    assert texts_of(grid, joint)[0] == "w2"
    assert texts_of(grid, raw)[0] == "w0"
    assert joint.spans.scores[0] == 6.0  # what is shown stays the logits


def test_a_text_of_one_window_is_scored_as_it_is():
    grid = windows_of([1, 1, 1])
    logits = drawn(grid, 0)
    given = AnswerConfig(max_answer_length=2)
    found, raw = (
        pool_answers(grid, logits, given, has_null=True, own_null=each).shares(0.3, 2.0) for each in (OWN_NULL, 0.0)
    )
    for name in ("answers", "nothing", "best", "null_odds"):
        assert np.array_equal(getattr(found, name), getattr(raw, name)), name


def test_the_order_of_windows_does_not_matter_nor_what_else_is_asked():
    alone, logits = windows_of([4]), drawn(windows_of([4]), 3)
    size = len(logits) // 4
    order = np.array([2, 0, 3, 1])
    tokens = (order[:, None] * size + np.arange(size)).ravel()
    turned = alone._replace(
        tokens=TokenGrid(
            alone.tokens.question_ids,
            alone.tokens.question_of,
            alone.tokens.window_at,
            alone.tokens.context_at,
            alone.tokens.offsets[tokens],
        ),
        can_bound=alone.can_bound[tokens],
    )
    beside = windows_of([1, 4, 2])
    together = np.concatenate([drawn(windows_of([1]), 8), logits, drawn(windows_of([2]), 9)])
    found = [
        (grid, pool_answers(grid, each, AnswerConfig(), has_null=True))
        for grid, each in ((alone, logits), (turned, logits[tokens]), (beside, together))
    ]
    shares = [pooled.shares(0.5, 2.0) for _, pooled in found]
    for (grid, pooled), share, question in zip(found, shares, (0, 0, 1), strict=True):
        own = {texts_of(grid, pooled)[place]: share.answers[place] for place in pooled.of(question)}
        first = dict(zip(texts_of(*found[0]), shares[0].answers, strict=True))
        assert own == pytest.approx(first, rel=1e-6)
        assert share.null_odds[question] == pytest.approx(shares[0].null_odds[0], rel=1e-6)


def test_without_no_answer_raw_logits_of_windows_compare():
    grid = windows_of([2])
    logits = logits_of([10.0, 8.0, -9.0, 3.0, 6.0, -9.0], [0.0] * 6)
    pooled = pool_answers(grid, logits, AnswerConfig(max_answer_length=1), has_null=False)
    assert texts_of(grid, pooled)[0] == "w0"


def words(text):
    """Cut a text at every place that is not inside a word; blanks alone are left out."""
    places = [0, *(place for place in range(1, len(text)) if not inside_words(text)[place]), len(text)]
    parts = [text[first:stop] for first, stop in zip(places, places[1:], strict=False)]
    return [part for part in parts if part.strip()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("In 1066, Coyle", ["In", "1066", ",", "Coyle"]),
        ("1,066 of 3.5 km² (2nd)", ["1,066", "of", "3.5", "km²", "(", "2nd", ")"]),
        ("Coyle's dog", ["Coyle", "'s", "dog"]),
        ("don’t", ["don", "’t"]),
        ("l'Allemagne", ["l", "'", "Allemagne"]),
        ("well-known", ["well", "-", "known"]),
        ("e\u0301tude cafe\u0301.", ["e\u0301tude", "cafe\u0301", "."]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),  # vowel signs and viramas are marks
        ("مَدْرَسَة", ["مَدْرَسَة"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),  # a joiner stands between the two parts of one word
        ("東京1066年", ["東", "京", "1066", "年"]),
        ("カタカナ", ["カ", "タ", "カ", "ナ"]),
        ("ที่", ["ที่"]),  # one letter with two marks
        ("한국은", ["한", "국", "은"]),
        ("👩\u200d🔬", ["👩\u200d🔬"]),
        ("snake_case", ["snake_case"]),
        ("", []),
    ],
)
def test_words_are_runs_of_letters_digits_and_marks_where_a_script_has_blanks(text, expected):
    assert words(text) == expected


def test_a_text_begins_and_ends_outside_words():
    for text in ("weir", "\u0301weir", "1.", ""):
        found = inside_words(text)
        assert len(found) == len(text) + 1
        assert not found[0]
        assert not found[-1]
