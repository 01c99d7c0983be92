import gc
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

from bertvision.data.example import GoldAnswer, Question
from bertvision.encoder.load import load_tokenizer
from bertvision.errors import BertVisionError, DataError, FolderError
from bertvision.predictions import spans as spans_module
from bertvision.predictions.logits import grid_of, load_logits, save_logits, text_grid
from bertvision.predictions.prediction import AnswerConfig
from bertvision.predictions.spans import best_spans, decode_spans, predict_spans
from bertvision.windows.window import Window, WindowConfig, cut_windows

quickly = settings(max_examples=80, deadline=None, derandomize=True)
# Context lengths of each question's windows.
shapes = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=3)
seeds = st.integers(0, 2**32 - 1)
WORDS = [f"w{number}" for number in range(60)]
CONTEXT = " ".join(WORDS)


def make_grid(shape, step=2, context_at=3):
    """Lay out windows of so many context tokens per question, each `step` words after the one before it."""
    words = np.cumsum([0, *(len(word) + 1 for word in WORDS)])
    offsets = np.stack([words[:-1], words[1:] - 1], axis=1).astype(np.int32)
    windows = [
        Window(question, np.zeros(context_at + length + 1, dtype=np.int32), context_at, offsets[place : place + length])
        for question, lengths in enumerate(shape)
        for place, length in zip(range(0, step * len(lengths), step), lengths, strict=True)
    ]
    return grid_of(windows, [f"q{question}" for question in range(len(shape))])


def draw_logits(grid, seed):
    return np.random.default_rng(seed).normal(0, 3, (len(grid.offsets), 2)).astype(np.float32)


def flat_logits(grid, *, null=(0.0, 0.0), **tokens):
    """Return every token -9, the first token of every window `null`, and named tokens (w3=(start, end)) their own."""
    logits = np.full((len(grid.offsets), 2), -9, dtype=np.float32)
    logits[grid.window_at[:-1]] = null
    for word, pair in tokens.items():
        logits[grid.offsets[:, 0] == f"{CONTEXT} ".index(f"{word} ")] = pair
    return logits


def predict_one(logits, grid, *, has_null=True, **config):
    (prediction,) = predict_spans(grid, logits, [CONTEXT], AnswerConfig(**config), has_null=has_null)
    return prediction


def softmax(scores):
    exps = [math.exp(score - max(scores)) for score in scores]
    return [each / sum(exps) for each in exps]


# The search


def all_pairs(grid, window, max_answer_length):
    """List a window's valid spans one by one."""
    tokens = range(grid.window_at[window], grid.window_at[window + 1])
    context = [token for token in tokens if grid.offsets[token, 0] >= 0]
    return [(start, end) for start in context for end in context if 0 <= end - start < max_answer_length]


@quickly
@given(shape=shapes, seed=seeds, tied=st.booleans(), max_answer_length=st.integers(1, 12), n_best=st.integers(1, 30))
def test_best_spans_are_those_of_a_search_over_all_pairs(shape, seed, tied, max_answer_length, n_best):
    grid = make_grid(shape)
    logits = draw_logits(grid, seed)
    logits = logits.round() if tied else logits
    found = best_spans(grid, logits, AnswerConfig(n_best=n_best, max_answer_length=max_answer_length))
    for window in range(grid.num_windows):
        pairs = all_pairs(grid, window, max_answer_length)
        expected = sorted((logits[start, 0] + logits[end, 1] for start, end in pairs), reverse=True)[:n_best]
        count = len(expected)
        assert found.scores[window].tolist() == [*expected, *[-math.inf] * (n_best - count)]
        spans = list(zip(found.starts[window, :count].tolist(), found.ends[window, :count].tolist(), strict=True))
        assert len(set(spans)) == count
        assert set(spans) <= set(pairs)
        assert [logits[start, 0] + logits[end, 1] for start, end in spans] == expected


@pytest.mark.parametrize("tied", [False, True])
def test_how_many_windows_are_searched_at_once_changes_nothing(monkeypatch, tied):
    grid = make_grid([[9, 4], [1], [7, 8, 2], [5]])
    logits, config = draw_logits(grid, 0), AnswerConfig(n_best=7, max_answer_length=4)
    logits = logits.round() if tied else logits
    together = best_spans(grid, logits, config)
    monkeypatch.setattr(spans_module, "CELLS_IN_CACHE", 60)
    few = best_spans(grid, logits, config)
    is_span = np.isfinite(together.scores)
    assert few.scores.tolist() == together.scores.tolist()
    assert few.starts[is_span].tolist() == together.starts[is_span].tolist()
    assert few.ends[is_span].tolist() == together.ends[is_span].tolist()


def test_of_equal_spans_those_that_start_first_are_found_and_of_these_the_shorter_ones():
    grid = make_grid([[9]])
    found = best_spans(grid, np.zeros((len(grid.offsets), 2), np.float32), AnswerConfig(n_best=5, max_answer_length=3))
    first = int(grid.context_at[0])
    spans = list(zip((found.starts[0] - first).tolist(), (found.ends[0] - first).tolist(), strict=True))
    assert spans == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)]


def test_an_answer_may_be_as_long_as_its_window():
    grid = make_grid([[9]])
    logits = flat_logits(grid, w0=(9.0, -9.0), w8=(-9.0, 9.0))
    assert predict_one(logits, grid, max_answer_length=10**15).text == " ".join(WORDS[:9])


@pytest.mark.parametrize(("longest", "expected"), [(4, "w2 w3 w4 w5"), (3, "w2"), (1, "w2")])
def test_an_answer_is_not_longer_than_its_limit(longest, expected):
    grid = make_grid([[9]])
    logits = flat_logits(grid, w2=(5.0, 1.0), w5=(0.0, 5.0))
    assert predict_one(logits, grid, max_answer_length=longest).text == expected


def test_an_answer_does_not_end_before_it_starts():
    grid = make_grid([[9]])
    logits = flat_logits(grid, w2=(0.0, 9.0), w6=(9.0, 0.0))
    assert predict_one(logits, grid).text in ("w2", "w6")  # 0 + 9 each


def test_tokens_outside_the_context_are_no_answer():
    grid = make_grid([[4]])
    logits = flat_logits(grid, null=(-9.0, -9.0), w1=(1.0, 1.0))
    outside = np.setdiff1d(np.flatnonzero(grid.offsets[:, 0] < 0), [0])
    logits[outside] = 100
    assert len(outside) == 3
    assert predict_one(logits, grid).text == "w1"


# Joint readouts


def draw_joint_logits(grid, rank, seed):
    """Draw small whole numbers, whose sums are exact in any order."""
    return np.random.default_rng(seed).integers(-3, 4, (len(grid.offsets), 2 + 2 * rank)).astype(np.float32)


def joint_score(logits, start, end):
    rank = (logits.shape[1] - 2) // 2
    products = [logits[start, 2 + each] * logits[end, 2 + rank + each] for each in range(rank)]
    return float(logits[start, 0] + logits[end, 1] + sum(products))


@quickly
@given(shape=shapes, seed=seeds, rank=st.integers(1, 4), longest=st.integers(1, 12), n_best=st.integers(1, 30))
def test_best_spans_of_a_joint_readout_are_those_of_a_search_over_all_pairs(shape, seed, rank, longest, n_best):
    grid = make_grid(shape)
    logits = draw_joint_logits(grid, rank, seed)
    found = best_spans(grid, logits, AnswerConfig(n_best=n_best, max_answer_length=longest))
    for window in range(grid.num_windows):
        pairs = all_pairs(grid, window, longest)
        expected = sorted((joint_score(logits, *pair) for pair in pairs), reverse=True)[:n_best]
        count = len(expected)
        assert found.scores[window].tolist() == [*expected, *[-math.inf] * (n_best - count)]
        spans = list(zip(found.starts[window, :count].tolist(), found.ends[window, :count].tolist(), strict=True))
        assert len(set(spans)) == count
        assert [joint_score(logits, *span) for span in spans] == expected


def ranked_with_null(spans, null):
    """Put the null score among the best eight, or behind them."""
    is_behind = sum(score >= null for score in spans) == 8
    return [*spans, null] if is_behind else sorted([*spans, null], reverse=True)[:8]


@quickly
@given(shape=shapes, seed=seeds, rank=st.integers(1, 3), has_null=st.booleans())
def test_answers_of_a_joint_readout_are_ranked_by_the_whole_score(shape, seed, rank, has_null):
    grid = make_grid(shape)
    logits = draw_joint_logits(grid, rank, seed)
    predictions = predict_spans(grid, logits, [CONTEXT] * len(shape), AnswerConfig(n_best=8), has_null=has_null)
    for question, prediction in enumerate(predictions):
        windows = np.flatnonzero(grid.question_of == question)
        spans = sorted((joint_score(logits, *pair) for w in windows for pair in all_pairs(grid, w, 30)), reverse=True)
        null = min(joint_score(logits, first, first) for first in grid.window_at[windows])
        scores = [each.score for each in prediction.candidates]
        assert prediction.null_odds == (null - spans[0] if has_null else None)
        assert scores == (ranked_with_null(spans[:8], null) if has_null else spans[:8])
        assert [each.probability for each in prediction.candidates] == pytest.approx(softmax(scores))


def text_of(grid, start, end):
    return CONTEXT[grid.offsets[start, 0] : grid.offsets[end, 1]]


@quickly
@given(
    shape=shapes,
    seed=seeds,
    rank=st.integers(0, 3),
    longest=st.integers(1, 12),
    n_best=st.integers(1, 30),
    threshold=st.integers(-9, 9),
)
def test_decoding_equals_a_search_over_all_pairs_of_all_windows(shape, seed, rank, longest, n_best, threshold):
    grid = make_grid(shape)
    logits = draw_joint_logits(grid, rank, seed)  # without a rank: start and end alone
    config = AnswerConfig(n_best=n_best, max_answer_length=longest, null_threshold=float(threshold))
    predictions = predict_spans(grid, logits, [CONTEXT] * len(shape), config, has_null=True)
    for question, prediction in enumerate(predictions):
        windows = np.flatnonzero(grid.question_of == question)
        scored = [(joint_score(logits, *pair), pair) for window in windows for pair in all_pairs(grid, window, longest)]
        best = max(score for score, _ in scored)
        null = min(joint_score(logits, first, first) for first in grid.window_at[windows])
        assert prediction.best_span in {text_of(grid, *pair) for score, pair in scored if score == best}
        assert prediction.null_odds == null - best
        assert prediction.text == ("" if null - best > threshold else prediction.best_span)
        found = [candidate.score for candidate in prediction.candidates if candidate.text]
        assert found == sorted((score for score, _ in scored), reverse=True)[: len(found)]
        assert len(found) >= min(len(scored), n_best) - 1  # "no answer" may take a place


def test_a_joint_readout_reports_start_and_end_as_they_are():
    grid = make_grid([[5]])
    logits = np.concatenate(
        [flat_logits(grid, null=(1.0, 0.5), w1=(2.0, 1.0), w3=(0.0, 2.5)), np.zeros((9, 4))], axis=1
    )
    logits = logits.astype(np.float32)
    logits[0, 2:] = [1.0, 2.0, 3.0, 4.0]  # 1 * 3 + 2 * 4 for no answer
    logits[4, 2:4], logits[6, 4:] = [0.5, 0.0], [-8.0, 9.0]  # w1 with w3: -4
    prediction = predict_one(logits, grid, n_best=3)
    found = [(each.text, each.start_logit, each.end_logit, each.score) for each in prediction.candidates]
    assert found == [("", 1.0, 0.5, 12.5), ("w1", 2.0, 1.0, 3.0), ("w3", 0.0, 2.5, 2.5)]
    assert prediction.null_odds == 12.5 - 3.0


def test_how_many_windows_of_a_joint_readout_are_searched_at_once_changes_nothing(monkeypatch):
    grid = make_grid([[9, 4], [1], [7, 8, 2], [5]])
    logits, config = draw_joint_logits(grid, 3, 0), AnswerConfig(n_best=7, max_answer_length=4)
    together = best_spans(grid, logits, config)
    monkeypatch.setattr(spans_module, "CELLS_IN_CACHE", 60)
    assert best_spans(grid, logits, config).scores.tolist() == together.scores.tolist()


# No answer


def test_the_null_score_is_the_lowest_over_a_questions_windows():
    grid = make_grid([[5, 5, 5]])
    logits = flat_logits(grid, w3=(2.0, 3.0))
    logits[grid.window_at[:-1]] = [(4.0, 4.0), (1.0, 0.5), (6.0, -1.0)]
    prediction = predict_one(logits, grid)
    assert prediction.null_odds == 1.5 - 5.0
    assert [(each.start_logit, each.end_logit) for each in prediction.candidates if each.text == ""] == [(1.0, 0.5)]


@pytest.mark.parametrize(
    ("threshold", "text"), [(-10.0, ""), (0.0, ""), (1.25, ""), (1.5, "w3"), (1.75, "w3"), (100.0, "w3")]
)
def test_no_answer_is_given_where_the_null_odds_exceed_the_threshold(threshold, text):
    grid = make_grid([[5]])
    prediction = predict_one(flat_logits(grid, null=(3.5, 3.0), w3=(2.0, 3.0)), grid, null_threshold=threshold)
    assert prediction.null_odds == 6.5 - 5.0
    assert (prediction.text, prediction.best_span) == (text, "w3")


def test_a_task_without_null_has_no_empty_candidate_and_no_null_odds():
    grid = make_grid([[5, 5]])
    prediction = predict_one(flat_logits(grid, null=(50.0, 50.0), w3=(2.0, 3.0)), grid, has_null=False)
    assert (prediction.text, prediction.best_span, prediction.null_odds) == ("w3", "w3", None)
    assert all(candidate.text for candidate in prediction.candidates)


# Runners-up


def test_candidates_are_best_first_with_the_softmax_of_their_scores():
    grid = make_grid([[5]])
    logits = flat_logits(grid, null=(0.5, 0.5), w1=(2.0, 1.0), w3=(0.0, 2.5))
    prediction = predict_one(logits, grid, n_best=4)
    assert [each.text for each in prediction.candidates] == ["w1 w2 w3", "w1", "w3", ""]
    assert [each.score for each in prediction.candidates] == [4.5, 3.0, 2.5, 1.0]
    assert [each.probability for each in prediction.candidates] == pytest.approx(softmax([4.5, 3.0, 2.5, 1.0]))


@pytest.mark.parametrize(("null", "place"), [((9.0, 9.0), 0), ((2.0, 1.5), 1), ((1.0, 1.0), 3), ((-9.0, -9.5), 3)])
def test_the_empty_candidate_is_kept_even_behind_the_best(null, place):
    grid = make_grid([[5]])
    logits = flat_logits(grid, null=null, w1=(2.0, 1.0), w3=(0.0, 2.5))
    texts = [each.text for each in predict_one(logits, grid, n_best=3).candidates]
    spans = ["w1 w2 w3", "w1", "w3"]
    # Among the best it takes the last one's place; behind them it is one more, as in run_qa.
    assert texts == [*spans[:place], "", *spans[place:2]]


@quickly
@given(shape=shapes, seed=seeds, n_best=st.integers(1, 30), has_null=st.booleans())
def test_probabilities_are_one_in_sum_and_never_rise(shape, seed, n_best, has_null):
    grid = make_grid(shape)
    config = AnswerConfig(n_best=n_best)
    for each in predict_spans(grid, draw_logits(grid, seed), [CONTEXT] * len(shape), config, has_null=has_null):
        scores = [candidate.score for candidate in each.candidates]
        assert [candidate.probability for candidate in each.candidates] == pytest.approx(softmax(scores))
        assert math.fsum(candidate.probability for candidate in each.candidates) == pytest.approx(1)
        # Scores are added in float32 for the ranking, so that equals to the last bit may swap.
        assert all(left >= right - 1e-5 for left, right in zip(scores, scores[1:], strict=False))
        assert len(scores) <= n_best + has_null


def test_the_best_span_of_any_window_is_the_questions_answer():
    grid = make_grid([[4, 4, 4], [4]])  # w0-w3, w2-w5, w4-w7; w0-w3
    logits = flat_logits(grid, null=(-5.0, -5.0), w6=(3.0, 3.0), w1=(2.0, 2.0))
    first, second = predict_spans(grid, logits, [CONTEXT] * 2, AnswerConfig(), has_null=True)
    assert (first.question_id, first.text, first.null_odds) == ("q0", "w6", -10.0 - 6.0)
    assert (second.question_id, second.text, second.null_odds) == ("q1", "w1", -10.0 - 4.0)


def test_a_span_that_two_windows_show_counts_in_each():
    grid = make_grid([[4, 4]])  # w0-w3 and w2-w5
    prediction = predict_one(flat_logits(grid, null=(-20.0, -20.0), w3=(3.0, 3.0)), grid, n_best=2)
    assert [each.text for each in prediction.candidates] == ["w3", "w3", ""]


def test_questions_do_not_see_each_other():
    grid = make_grid([[9, 4], [1], [7, 8, 2]])
    logits = draw_logits(grid, 1)
    together = predict_spans(grid, logits, [CONTEXT] * 3, AnswerConfig(), has_null=True)
    for number, shape in enumerate([[9, 4], [1], [7, 8, 2]]):
        windows = np.flatnonzero(grid.question_of == number)
        own = logits[grid.window_at[windows[0]] : grid.window_at[windows[-1] + 1]]
        (alone,) = predict_spans(make_grid([shape]), own, [CONTEXT], AnswerConfig(), has_null=True)
        assert (alone.text, alone.null_odds, alone.candidates) == (
            together[number].text,
            together[number].null_odds,
            together[number].candidates,
        )


def test_one_text_grid_serves_any_number_of_models():
    shape, config = [[9, 4], [1], [7, 8, 2]], AnswerConfig()
    grid = make_grid(shape)
    texts = text_grid(grid, [CONTEXT] * 3)
    for seed in range(3):
        logits = draw_logits(grid, seed)
        alone = predict_spans(grid, logits, [CONTEXT] * 3, config, has_null=True)
        assert decode_spans(texts, logits, config, has_null=True) == alone


def test_a_question_whose_context_holds_nothing_is_named():
    windows = [Window(n, np.zeros(4, np.int32), 2, np.array([[0, 1]], dtype=np.int32)) for n in range(3)]
    grid = grid_of(windows, ["q0", "q1", "q2"])
    with pytest.raises(DataError, match="'q1'"):
        predict_spans(grid, np.zeros((12, 2), np.float32), ["a", " ", " "], AnswerConfig(), has_null=True)


@pytest.mark.parametrize("is_on", [True, False])
def test_the_search_for_cycles_is_left_as_it_was(is_on):
    before, grid = gc.isenabled(), make_grid([[4]])
    try:
        (gc.enable if is_on else gc.disable)()
        predict_one(np.zeros((len(grid.offsets), 2), dtype=np.float32), grid)
        assert gc.isenabled() is is_on
    finally:
        (gc.enable if before else gc.disable)()


def test_logits_that_are_no_numbers_are_an_error_that_a_user_understands():
    grid = make_grid([[4]])
    with pytest.raises(BertVisionError, match="logits"):
        predict_one(np.full((len(grid.offsets), 2), np.nan, dtype=np.float32), grid)


# run_qa


def run_qa(windows, context, n_best, max_answer_length, threshold, has_null):
    """Answer one question as run_qa does, plainly: `windows` holds start logits, end logits and offsets or None."""
    found, null = [], None
    for starts, ends, offsets in windows:
        if null is None or starts[0] + ends[0] < null[0]:
            null = (starts[0] + ends[0], "", starts[0], ends[0])
        best_starts = sorted(range(len(starts)), key=starts.__getitem__, reverse=True)[:n_best]
        best_ends = sorted(range(len(ends)), key=ends.__getitem__, reverse=True)[:n_best]
        for start in best_starts:
            for end in best_ends:
                if offsets[start] is None or offsets[end] is None:
                    continue
                if end < start or end - start + 1 > max_answer_length:
                    continue
                text = context[offsets[start][0] : offsets[end][1]]
                found.append((starts[start] + ends[end], text, starts[start], ends[end]))
    ranked = sorted([*found, null] if has_null else found, key=lambda each: -each[0])[:n_best]
    if has_null and null not in ranked:
        ranked.append(null)
    probabilities = softmax([each[0] for each in ranked])
    best = next(each for each in ranked if each[1])
    odds = null[0] - best[0] if has_null else None
    return ("" if has_null and odds > threshold else best[1]), odds, ranked, probabilities


def as_features(grid, logits, question):
    """Return a question's windows as run_qa sees them."""
    for window in np.flatnonzero(grid.question_of == question):
        place = slice(grid.window_at[window], grid.window_at[window + 1])
        offsets = [None if first < 0 else (first, last) for first, last in grid.offsets[place].tolist()]
        yield logits[place, 0].tolist(), logits[place, 1].tolist(), offsets


@quickly
@given(
    shape=shapes,
    seed=seeds,
    max_answer_length=st.integers(1, 12),
    threshold=st.floats(-5, 5, width=16),
    has_null=st.booleans(),
)
def test_answers_are_run_qas_where_its_preselection_loses_nothing(shape, seed, max_answer_length, threshold, has_null):
    grid = make_grid(shape)  # 13 tokens at most, so that the 20 best starts and ends are all
    logits = draw_logits(grid, seed)
    config = AnswerConfig(n_best=20, max_answer_length=max_answer_length, null_threshold=threshold)
    predictions = predict_spans(grid, logits, [CONTEXT] * len(shape), config, has_null=has_null)
    for question, prediction in enumerate(predictions):
        features = list(as_features(grid, logits, question))
        text, odds, ranked, probabilities = run_qa(features, CONTEXT, 20, max_answer_length, threshold, has_null)
        assert prediction.text == text
        assert prediction.null_odds == (None if odds is None else pytest.approx(odds, abs=1e-5))
        assert [each.score for each in prediction.candidates] == pytest.approx([each[0] for each in ranked], abs=1e-5)
        assert sorted((each.text, each.start_logit, each.end_logit) for each in prediction.candidates) == sorted(
            each[1:] for each in ranked
        )
        assert [each.probability for each in prediction.candidates] == pytest.approx(probabilities, abs=1e-5)


def test_a_span_that_run_qas_preselection_loses_is_found():
    grid = make_grid([[50]])
    logits = flat_logits(grid, null=(-50.0, -50.0))
    late, early = np.flatnonzero(grid.offsets[:, 0] >= 0)[-20:], np.flatnonzero(grid.offsets[:, 0] >= 0)[:20]
    logits[late, 0], logits[early, 1] = 5, 5  # the 20 best starts stand behind the 20 best ends
    (text, *_) = run_qa(list(as_features(grid, flat_logits(grid, w1=(9.0, 9.0)), 0)), CONTEXT, 20, 30, 0.0, True)
    assert text == "w1"
    with pytest.raises(StopIteration):  # run_qa has no span at all
        run_qa(list(as_features(grid, logits, 0)), CONTEXT, 20, 30, 0.0, True)
    assert predict_one(logits, grid).candidates[0].score == 5.0 - 9.0


# Text


@pytest.fixture(scope="module")
def default_tokenizer():
    return load_tokenizer("default")


def answer_at_its_label(context, answer, tokenizer):
    """Predict with logits that point at the label of an answer."""
    question = Question("q0", "who", context, (GoldAnswer(answer, context.index(answer)),), "")
    windows = cut_windows([question], tokenizer, WindowConfig())
    grid = grid_of(windows, ["q0"])
    logits = np.zeros((len(grid.offsets), 2), dtype=np.float32)
    logits[windows[0].start, 0] = logits[windows[0].end, 1] = 9
    (prediction,) = predict_spans(grid, logits, [context], AnswerConfig(), has_null=True)
    return prediction.text


@pytest.mark.parametrize(
    ("context", "answer"),
    [
        ("Hannah  Coyle,\nengineer", "Hannah  Coyle"),
        ("It cost $1,200.50 (in 1887).", "$1,200.50"),
        ("the caf\u00e9 d\u2019\u00c9t\u00e9", "caf\u00e9 d\u2019\u00c9t\u00e9"),
        ("in \u65e5\u672c\u8a9e text", "\u65e5\u672c\u8a9e"),
        ("say \u05e9\u05dc\u05d5\u05dd now", "\u05e9\u05dc\u05d5\u05dd"),
        ("a \U0001f469\u200d\U0001f467 b", "\U0001f469\u200d\U0001f467"),
    ],
)
def test_the_text_is_cut_out_of_the_context_as_it_stands(default_tokenizer, context, answer):
    assert answer_at_its_label(context, answer, default_tokenizer) == answer


@pytest.mark.parametrize(
    "answer",
    [
        "cafe\u0301",  # an accent
        "cafe\u0301\u0323",  # two of them
        "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd\u05b0",  # Hebrew points
        "\u0e17\u0e35\u0e48",  # Thai: a vowel of combining class 0 and a tone mark
        "\u0939\u093f\u0928\u094d\u0926\u0941",  # Hindi: a vowel sign of combining class 0
        "\u2764\ufe0f",  # a heart and what makes it an emoji
    ],
)
@pytest.mark.parametrize("after", [" was", ".", ""])
def test_marks_on_the_last_letter_are_kept(default_tokenizer, answer, after):
    assert answer_at_its_label(f"le {answer}{after}", answer, default_tokenizer) == answer


@pytest.mark.parametrize(("blank", "n_best"), [((4, 4), 1), ((4, 4), 20), ((3, 5), 20)])
@pytest.mark.parametrize("has_null", [True, False])
def test_a_span_of_blanks_is_never_an_answer(blank, n_best, has_null):
    # Byte-level tokenizers make tokens of blanks; RoBERTa's trims blanks, but not line ends, to no character.
    offsets = np.array([[0, 3], blank, [5, 9]], dtype=np.int32)
    grid = grid_of([Window(0, np.zeros(6, dtype=np.int32), 2, offsets)], ["q0"])
    logits = np.full((6, 2), -9, dtype=np.float32)
    logits[3], logits[4] = 5, 3  # the blank wins over "weir"
    config = AnswerConfig(n_best=n_best)
    (prediction,) = predict_spans(grid, logits, ["the \nweir"], config, has_null=has_null)
    assert prediction.best_span == "weir"
    assert prediction.text == "weir"
    assert [each.text for each in prediction.candidates].count("") == int(has_null)


# The grid and its file


def test_a_grid_lays_windows_out_one_after_another():
    first = Window(0, np.zeros(6, dtype=np.int32), 3, np.array([[0, 2], [2, 4]], dtype=np.int32))
    second = Window(1, np.zeros(5, dtype=np.int32), 2, np.array([[7, 8], [9, 11]], dtype=np.int32))
    grid = grid_of([first, second], ["one", "two"])
    none = [-1, -1]
    assert grid.offsets.tolist() == [none, none, none, [0, 2], [2, 4], none, none, none, [7, 8], [9, 11], none]
    assert (grid.window_at.tolist(), grid.context_at.tolist()) == ([0, 6, 11], [3, 2])
    assert (grid.question_of.tolist(), grid.question_ids, grid.num_windows) == ([0, 1], ("one", "two"), 2)


def test_a_question_named_in_any_script_survives_the_file(tmp_path):
    names = ['a "quoted" \\ name', "\u65e5\u672c\u8a9e", "", "\U0001f600", "a\nb"]
    grid = make_grid([[2]] * len(names))
    grid = grid_of([Window(n, np.zeros(6, np.int32), 3, grid.offsets[3:5]) for n in range(len(names))], names)
    save_logits(tmp_path / "logits.safetensors", grid, draw_logits(grid, 0))
    assert load_logits(tmp_path / "logits.safetensors")[0].question_ids == tuple(names)


@pytest.mark.parametrize("layout", ["rows", "columns", "a slice"])
def test_logits_come_back_from_their_file_to_the_last_bit(tmp_path, layout):
    grid = make_grid([[9, 4], [1], [7, 8, 2]])
    logits = draw_logits(grid, 0)
    logits[:3] = [(np.finfo(np.float32).min, np.finfo(np.float32).tiny), (-0.0, 1e-45), (np.inf, -np.inf)]
    laid_out = {"rows": logits, "columns": np.asfortranarray(logits), "a slice": np.repeat(logits, 2, axis=1)[:, ::2]}
    save_logits(tmp_path / "logits.safetensors", grid, laid_out[layout])
    grid_read, logits_read = load_logits(tmp_path / "logits.safetensors")
    assert logits_read.dtype == np.float32
    assert logits_read.tobytes() == logits.tobytes()
    assert grid_read.difference(grid) is None
    for name in ("question_of", "window_at", "context_at", "offsets"):
        assert getattr(grid_read, name).dtype == getattr(grid, name).dtype


@pytest.fixture
def logits_file(tmp_path):
    grid = make_grid([[9, 4], [1]])
    path = tmp_path / "logits.safetensors"
    save_logits(path, grid, draw_logits(grid, 0))
    return path


@pytest.mark.parametrize("kept", [0, 4, 8, 100, 0.5, -1])
def test_a_file_that_was_cut_off_is_a_folder_error(logits_file, kept):
    content = logits_file.read_bytes()
    logits_file.write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    with pytest.raises(FolderError, match=r"logits\.safetensors: missing, damaged .*; predict again"):
        load_logits(logits_file)


def test_a_missing_file_and_a_folder_are_folder_errors(tmp_path):
    for path in (tmp_path / "logits.safetensors", tmp_path):
        with pytest.raises(FolderError, match="predict again"):
            load_logits(path)


@pytest.mark.parametrize("question_ids", [None, "", "{", '["q0", "q1"', "3", "null"])
def test_a_file_whose_questions_cannot_be_read_is_a_folder_error(logits_file, question_ids):
    with safe_open(logits_file, framework="numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dictionary)
    save_file(tensors, logits_file, metadata=None if question_ids is None else {"question_ids": question_ids})
    with pytest.raises(FolderError, match="predict again"):
        load_logits(logits_file)


@pytest.mark.parametrize("missing", ["logits", "question_of", "window_at", "context_at", "offsets"])
def test_a_file_that_lacks_a_part_is_a_folder_error(logits_file, missing):
    with safe_open(logits_file, framework="numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys() if name != missing}  # noqa: SIM118
    save_file(tensors, logits_file, metadata={"question_ids": json.dumps(["q0", "q1"])})
    with pytest.raises(FolderError, match=missing):
        load_logits(logits_file)
