import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.errors import DataError, SettingsError
from bertvision.predictions.ensemble import ScoredText, combine_logits, combine_spans, log_softmax
from bertvision.predictions.logits import grid_of, text_grid
from bertvision.predictions.prediction import AnswerConfig
from bertvision.predictions.spans import decode_spans
from bertvision.windows.window import Window

LENGTHS = [5, 9, 4, 30]  # tokens of each window
quickly = settings(max_examples=60, deadline=None, derandomize=True)
CONTEXT = "old weir by the mill"
WORDS = [(0, 3), (4, 8), (9, 11), (12, 15), (16, 20)]
PIECES = [(0, 1), (1, 3), (4, 6), (6, 8), (9, 11), (12, 15), (16, 18), (18, 20)]  # another tokenizer's


@pytest.fixture
def grid():
    windows = [
        Window(number, np.zeros(length, dtype=np.int32), 2, np.arange(2 * length - 6, dtype=np.int32).reshape(-1, 2))
        for number, length in enumerate(LENGTHS)
    ]
    return grid_of(windows, ["q0", "q1", "q2", "q3"])


@pytest.fixture
def members():
    random = np.random.default_rng(0)
    return [random.normal(0, spread, (sum(LENGTHS), 2)).astype(np.float32) for spread in (1, 3, 10)]


def probabilities_of(logits):
    """Divide exponentials by their sum, window by window, starts and ends apart."""
    parts = np.split(logits.astype(np.float64), np.cumsum(LENGTHS)[:-1])
    return np.concatenate([np.exp(part) / np.exp(part).sum(axis=0) for part in parts])


def test_log_softmax_is_torchs_within_every_window(grid, members):
    for member in members:
        parts = torch.from_numpy(member).double().split(LENGTHS)
        expected = torch.cat([part.log_softmax(dim=0) for part in parts]).numpy()
        np.testing.assert_allclose(log_softmax(grid, member), expected, rtol=0, atol=1e-5)


def test_probabilities_of_a_window_are_one_in_sum(grid, members):
    for part in np.split(np.exp(log_softmax(grid, members[1])), np.cumsum(LENGTHS)[:-1]):
        np.testing.assert_allclose(part.sum(axis=0), [1, 1], atol=1e-5)


@pytest.mark.parametrize("shift", [-1e4, 1e4])
def test_large_logits_overflow_nowhere(grid, members, shift):
    logits = (members[0] + shift).astype(np.float32)
    normalised = log_softmax(grid, logits)
    assert np.isfinite(normalised).all()
    np.testing.assert_allclose(np.exp(normalised), probabilities_of(logits - np.float32(shift)), atol=1e-5)


def test_max_takes_the_larger_probability_token_by_token(grid, members):
    combined = np.exp(combine_logits(grid, members, "max"))
    np.testing.assert_allclose(combined, np.max([probabilities_of(member) for member in members], axis=0), atol=1e-6)


def test_mean_takes_the_mean_probability(grid, members):
    combined = np.exp(combine_logits(grid, members, "mean"))
    np.testing.assert_allclose(combined, sum(probabilities_of(member) for member in members) / 3, atol=1e-6)


def test_weighted_takes_the_mean_probability_by_weights(grid, members):
    combined = np.exp(combine_logits(grid, members, "weighted", (3.0, 1.0, 4.0)))
    one, two, three = (probabilities_of(member) for member in members)
    np.testing.assert_allclose(combined, (3 * one + two + 4 * three) / 8, atol=1e-6)


@pytest.mark.parametrize("how", ["max", "mean", "logits", "weighted"])
def test_every_way_equals_a_loop_over_tokens(grid, members, how):
    weights = (0.5, 0.2, 0.3) if how == "weighted" else None
    combined = combine_logits(grid, members, how, weights)
    windows = [range(first, stop) for first, stop in pairwise(grid.window_at.tolist())]
    for window in windows:
        for column in (0, 1):
            logits = [[float(member[token, column]) for token in window] for member in members]
            shares = [[math.exp(each) / sum(map(math.exp, row)) for each in row] for row in logits]
            for place, token in enumerate(window):
                if how == "logits":
                    expected = sum(row[place] for row in logits) / 3
                elif how == "max":
                    expected = math.log(max(row[place] for row in shares))
                else:
                    of = weights or (1 / 3, 1 / 3, 1 / 3)
                    expected = math.log(sum(weight * row[place] for weight, row in zip(of, shares, strict=True)))
                assert combined[token, column] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_only_the_proportion_of_weights_matters(grid, members, scale):
    weights = [scale * weight for weight in (3.0, 1.0, 4.0)]
    combined = combine_logits(grid, members, "weighted", weights)
    np.testing.assert_allclose(combined, combine_logits(grid, members, "weighted", (3.0, 1.0, 4.0)), atol=1e-5)


def test_equal_weights_are_the_mean(grid, members):
    weighted = combine_logits(grid, members, "weighted", (2.0, 2.0, 2.0))
    np.testing.assert_allclose(weighted, combine_logits(grid, members, "mean"), atol=1e-6)


@pytest.mark.parametrize(
    ("how", "weights", "told"),
    [
        ("weighted", None, "`weighted` needs weights, one for each of the 3 members"),
        ("mean", (1.0, 1.0, 1.0), "`mean` takes no weights; leave them out or choose `weighted`"),
        ("weighted", (1.0, 1.0), "got 2 weights for 3 members; give one for each"),
        ("weighted", (1.0, 0.0, 1.0), "the weight 0 is no positive number; leave out a member"),
        ("weighted", (1.0, -1.0, 1.0), "the weight -1 is no positive number"),
        ("weighted", (1.0, math.nan, 1.0), "the weight nan is no positive number"),
        ("weighted", (1.0, math.inf, 1.0), "the weight inf is no positive number"),
    ],
)
def test_weights_that_do_not_fit_are_refused(grid, members, how, weights, told):
    with pytest.raises(SettingsError, match=told):
        combine_logits(grid, members, how, weights)


def test_logits_takes_the_mean_logit(grid, members):
    combined = combine_logits(grid, members, "logits")
    np.testing.assert_allclose(combined, (members[0] + members[1] + members[2]) / 3, rtol=1e-6, atol=1e-6)


def test_two_members_are_combined_by_this_arithmetic():
    grid = grid_of([Window(0, np.zeros(4, dtype=np.int32), 2, np.array([[0, 1]], dtype=np.int32))], ["q0"])
    one = np.log(np.array([[4, 1], [2, 1], [1, 1], [1, 1]], dtype=np.float32))
    other = np.log(np.array([[1, 2], [1, 4], [2, 1], [4, 1]], dtype=np.float32))
    of_max = np.exp(combine_logits(grid, [one, other], "max"))
    of_mean = np.exp(combine_logits(grid, [one, other], "mean"))
    assert of_max == pytest.approx(np.array([[4 / 8, 1 / 4], [2 / 8, 4 / 8], [2 / 8, 1 / 4], [4 / 8, 1 / 4]]))
    assert of_mean[0] == pytest.approx([(4 / 8 + 1 / 8) / 2, (1 / 4 + 2 / 8) / 2])


@pytest.mark.parametrize("how", ["max", "mean", "logits"])
def test_a_combination_is_float32_like_its_members_and_leaves_them_alone(grid, members, how):
    before = [member.copy() for member in members]
    combined = combine_logits(grid, members, how)
    assert (combined.dtype, combined.shape) == (np.float32, members[0].shape)
    assert all(np.array_equal(member, copy) for member, copy in zip(members, before, strict=True))


@pytest.mark.parametrize("how", ["max", "mean", "logits"])
def test_the_order_of_members_does_not_matter(grid, members, how):
    forth, back = combine_logits(grid, members, how), combine_logits(grid, members[::-1], how)
    np.testing.assert_allclose(forth, back, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("how", ["max", "mean"])
def test_a_member_alone_is_its_own_log_softmax(grid, members, how):
    combined = combine_logits(grid, members[:1], how)
    np.testing.assert_allclose(combined, np.log(probabilities_of(members[0])), atol=1e-5)


@pytest.mark.parametrize("how", ["max", "mean", "logits"])
def test_a_member_that_scores_pairs_is_refused(grid, members, how):
    joint = np.concatenate([members[0], np.zeros((sum(LENGTHS), 4), np.float32)], axis=1)
    with pytest.raises(SettingsError, match="scores pairs .* leave it out"):
        combine_logits(grid, [members[0], joint], how)


def test_equal_grids_have_no_difference(grid):
    assert grid.difference(replace(grid, offsets=grid.offsets.copy())) is None


@pytest.mark.parametrize(
    ("name", "changed", "difference"),
    [
        ("question_ids", ("q0", "q1", "q2", "other"), "their questions differ"),
        ("question_ids", ("q0", "q1", "q2"), "their questions differ"),
        ("question_ids", ("q1", "q0", "q2", "q3"), "their questions differ"),
        ("question_of", np.array([0, 1, 2, 2], dtype=np.int32), "their windows or tokenizers differ"),
        ("window_at", np.array([0, 5, 14, 17, 48]), "their windows or tokenizers differ"),
        ("window_at", np.array([0, 5, 14, 18]), "their windows or tokenizers differ"),
        ("context_at", np.array([2, 2, 2, 3], dtype=np.int32), "their windows or tokenizers differ"),
        ("offsets", np.full((48, 2), -1, dtype=np.int32), "their windows or tokenizers differ"),
    ],
)
def test_grids_that_differ_are_named(grid, name, changed, difference):
    other = replace(grid, **{name: changed})
    assert grid.difference(other) == difference
    assert other.difference(grid) == difference


def lay_out(windows, contexts=(CONTEXT,)):
    """Join contexts with windows of (question, offsets), each of which begins with a first token."""
    laid = [
        Window(question, np.zeros(len(offsets) + 2, dtype=np.int32), 1, np.array(offsets, dtype=np.int32))
        for question, offsets in windows
    ]
    return text_grid(grid_of(laid, [f"q{number}" for number in range(len(contexts))]), list(contexts))


def draw(grid, seed, columns=2, spread=2):
    logits = np.random.default_rng(seed).normal(0, spread, (len(grid.tokens.offsets), columns))
    return ScoredText(grid, logits.astype(np.float32))


def score(logits, start, end):
    rank = (logits.shape[1] - 2) // 2
    products = sum(float(logits[start, 2 + each]) * float(logits[end, 2 + rank + each]) for each in range(rank))
    return float(logits[start, 0]) + float(logits[end, 1]) + products


def listed(member, question, count, longest=30, has_null=True):
    """List a member's best answers by a search over all pairs: characters -> probability; None: no answer."""
    tokens, logits = member.grid.tokens, member.logits
    spans, nulls = [], []
    for window in np.flatnonzero(tokens.question_of == question):
        places = range(tokens.window_at[window], tokens.window_at[window + 1])
        nulls.append(score(logits, places[0], places[0]))
        inside = [place for place in places if tokens.offsets[place, 0] >= 0]
        spans += [
            (score(logits, start, end), (int(tokens.offsets[start, 0]), int(tokens.offsets[end, 1])))
            for start in inside
            for end in inside
            if 0 <= end - start < longest
        ]
    scores = {None: min(nulls)} if has_null else {}
    for value, characters in sorted(spans, reverse=True)[:count]:
        scores.setdefault(characters, value)
    total = sum(map(math.exp, scores.values()))
    return {characters: math.exp(value) / total for characters, value in scores.items()}


def combine_plainly(members, question, how, weights, count=20):
    lists = [listed(member, question, count) for member in members]
    united = {}
    for characters in {characters for each in lists for characters in each}:
        shares = [each.get(characters, 0.0) for each in lists]
        of = weights or [1 / len(members)] * len(members)
        united[characters] = (
            max(shares) if how == "max" else sum(w * p for w, p in zip(of, shares, strict=True)) / sum(of)
        )
    return united


TWO_QUESTIONS = (CONTEXT, "the weir was old")
ONE_GRID = [(0, WORDS[:3]), (0, WORDS[2:]), (1, [(0, 3), (4, 8), (9, 12), (13, 16)])]
OTHER_GRID = [(0, PIECES), (1, [(0, 3), (4, 6), (6, 8), (9, 12), (13, 16)])]


@pytest.mark.parametrize("columns", [2, 6])
@pytest.mark.parametrize(("how", "weights"), [("max", None), ("mean", None), ("weighted", (3.0, 1.0))])
def test_probabilities_are_those_of_a_loop_over_the_united_spans(how, weights, columns):
    members = [draw(lay_out(ONE_GRID, TWO_QUESTIONS), 0), draw(lay_out(OTHER_GRID, TWO_QUESTIONS), 1, columns)]
    config = AnswerConfig(n_best=1000)  # lists everything, so that candidates can be compared one by one
    predictions = combine_spans(members, how, config, weights, has_null=True)
    assert [each.question_id for each in predictions] == ["q0", "q1"]
    for question, prediction in enumerate(predictions):
        expected = combine_plainly(members, question, how, weights, count=1000)
        text = TWO_QUESTIONS[question]
        spans = sorted((-value, characters) for characters, value in expected.items() if characters is not None)
        best = -spans[0][0]
        assert prediction.best_span == text[slice(*spans[0][1])]
        assert prediction.null_odds == pytest.approx(math.log(expected[None]) - math.log(best), abs=1e-4)
        assert prediction.text == ("" if expected[None] > best else prediction.best_span)
        total = sum(expected.values())  # not one for max
        ranked = sorted((value / total for value in expected.values()), reverse=True)
        assert [each.probability for each in prediction.candidates] == pytest.approx(ranked, abs=1e-6)
        texts = {"" if characters is None else text[slice(*characters)] for characters in expected}
        assert {each.text for each in prediction.candidates} == texts
        assert [math.exp(each.score) for each in prediction.candidates] == pytest.approx(
            [value * total for value in ranked], rel=1e-3
        )


def test_what_a_member_does_not_list_has_no_probability_of_its():
    offsets = [(2 * place, 2 * place + 1) for place in range(7)]  # 28 spans, of which 20 are listed
    context = "a b c d e f g"
    one, other = (draw(lay_out([(0, offsets)], [context]), seed) for seed in (3, 4))
    lists = [listed(member, 0, 20) for member in (one, other)]
    assert len(lists[0].keys() ^ lists[1].keys()) > 2  # some are listed by one of them alone
    expected = combine_plainly([one, other], 0, "mean", None, count=20)
    wanted = {"" if key is None else context[slice(*key)]: value for key, value in expected.items()}
    (prediction,) = combine_spans([one, other], "mean", AnswerConfig(n_best=5), has_null=True)
    (at_length,) = combine_spans([one, other], "mean", AnswerConfig(), has_null=True)
    assert [each.score for each in prediction.candidates[:5]] == [each.score for each in at_length.candidates[:5]]
    for candidate in at_length.candidates:
        assert math.exp(candidate.score) == pytest.approx(wanted[candidate.text], rel=1e-4)


def flat(grid, null, **words):
    """Return every token -20, first tokens half of `null` twice, and named words (start, end)."""
    logits = np.full((len(grid.tokens.offsets), 2), -20, dtype=np.float32)
    logits[grid.tokens.window_at[:-1]] = null / 2
    for word, pair in words.items():
        logits[grid.tokens.offsets[:, 0] == CONTEXT.index(word)] = pair
    return ScoredText(grid, logits)


def test_two_tokenizers_are_combined_by_this_arithmetic():
    log = math.log
    one = flat(lay_out([(0, WORDS)]), log(2), weir=(log(6), 0.0), mill=(log(2), 0.0))
    other = flat(lay_out([(0, [(0, 8), *WORDS[2:]])]), log(3), old=(0.0, 0.0), mill=(log(6), 0.0))
    # Exponentials of start + end, such as 6 x 1; everything else has a factor of exp(-20).
    of_one = {"": 2, "weir": 6, "mill": 2, "weir by the mill": 6}
    of_other = {"": 3, "old weir": 1, "mill": 6, "old weir by the mill": 1}
    p_one, p_other = ({text: n / sum(of.values()) for text, n in of.items()} for of in (of_one, of_other))
    texts = {*of_one, *of_other}
    best_of_max = max((max(p_one.get(text, 0), p_other.get(text, 0)), text) for text in texts if text)
    (prediction,) = combine_spans([one, other], "max", AnswerConfig(), has_null=True)
    assert (prediction.text, best_of_max) == ("mill", (pytest.approx(6 / 11), "mill"))
    assert prediction.null_odds == pytest.approx(log(3 / 11) - log(6 / 11), abs=1e-5)
    (prediction,) = combine_spans([one, other], "weighted", AnswerConfig(), (7.0, 1.0), has_null=True)
    mean = {text: (7 * p_one.get(text, 0) + p_other.get(text, 0)) / 8 for text in texts}
    found = {each.text: each.probability for each in prediction.candidates}
    assert prediction.best_span in ("weir", "weir by the mill")
    assert {text: found[text] for text in texts} == pytest.approx(mean, abs=1e-5)


def test_a_span_in_two_windows_counts_once():
    grid = lay_out([(0, WORDS[:3]), (0, WORDS[1:])])
    member = flat(grid, 0.0, weir=(1.0, 1.0))
    (prediction,) = combine_spans([member], "mean", AnswerConfig(), has_null=True)
    assert [each.text for each in prediction.candidates].count("weir") == 1
    assert prediction.candidates[0].probability == pytest.approx(math.exp(2) / (1 + math.exp(2)), abs=1e-5)


@quickly
@given(
    lengths=st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=3), min_size=1, max_size=3),
    seed=st.integers(0, 2**32 - 1),
    tied=st.booleans(),
    columns=st.sampled_from([2, 6]),
    how=st.sampled_from(["max", "mean"]),
    has_null=st.booleans(),
    n_best=st.integers(1, 25),
)
def test_a_member_alone_gives_its_own_answers(lengths, seed, tied, columns, how, has_null, n_best):
    context = " ".join(f"w{number}" for number in range(10))
    places = [(3 * number, 3 * number + 2) for number in range(10)]
    windows = [
        (question, places[2 * rank : 2 * rank + length])
        for question, of in enumerate(lengths)
        for rank, length in enumerate(of)
    ]
    member = draw(lay_out(windows, [context] * len(lengths)), seed, columns)
    if tied:  # the search breaks ties by how many are wanted, so as many as the ensemble lists
        member, n_best = member._replace(logits=member.logits.round()), max(20, n_best)
    config = AnswerConfig(n_best=n_best)
    together = combine_spans([member], how, config, has_null=has_null)
    for one, alone in zip(together, decode_spans(*member, config, has_null=has_null), strict=True):
        assert (one.question_id, one.text, one.best_span) == (alone.question_id, alone.text, alone.best_span)
        if has_null:
            assert one.null_odds == pytest.approx(alone.null_odds, abs=1e-9)
        once = list(dict.fromkeys(each.text for each in alone.candidates))
        assert [each.text for each in one.candidates if each.text][: len([t for t in once if t])] == [
            text for text in once if text
        ]


@pytest.mark.parametrize("how", ["max", "mean"])
def test_the_order_of_members_with_other_tokens_does_not_matter(how):
    members = [draw(lay_out(ONE_GRID, TWO_QUESTIONS), 0), draw(lay_out(OTHER_GRID, TWO_QUESTIONS), 1)]
    forth = combine_spans(members, how, AnswerConfig(), has_null=True)
    back = combine_spans(members[::-1], how, AnswerConfig(), has_null=True)
    for one, other in zip(forth, back, strict=True):
        assert (one.text, one.null_odds) == (other.text, pytest.approx(other.null_odds))


def test_a_task_without_no_answer_has_no_null_odds():
    members = [draw(lay_out(ONE_GRID, TWO_QUESTIONS), 0), draw(lay_out(OTHER_GRID, TWO_QUESTIONS), 1)]
    for prediction in combine_spans(members, "mean", AnswerConfig(), has_null=False):
        assert prediction.null_odds is None
        assert prediction.text == prediction.best_span != ""
        assert "" not in [each.text for each in prediction.candidates]
        question = int(prediction.question_id[1:])
        one, other = (listed(member, question, 20, has_null=False) for member in members)
        best = max((one.get(span, 0) + other.get(span, 0)) / 2 for span in {*one, *other})
        assert math.exp(prediction.candidates[0].score) == pytest.approx(best, rel=1e-4)


def test_no_answer_is_given_above_the_threshold():
    members = [draw(lay_out([(0, WORDS)]), 0), draw(lay_out([(0, PIECES)]), 1)]
    (at_zero,) = combine_spans(members, "mean", AnswerConfig(), has_null=True)
    for threshold, is_given in ((at_zero.null_odds - 1, False), (at_zero.null_odds + 1, True)):
        (prediction,) = combine_spans(members, "mean", AnswerConfig(null_threshold=threshold), has_null=True)
        assert prediction.text == (at_zero.best_span if is_given else "")


def test_logits_of_different_tokenizers_have_no_common_scale():
    members = [draw(lay_out([(0, WORDS)]), 0), draw(lay_out([(0, PIECES)]), 1)]
    with pytest.raises(SettingsError, match="no common scale; choose max, mean or weighted"):
        combine_spans(members, "logits", AnswerConfig(), has_null=True)


def test_members_of_different_questions_are_refused():
    members = [draw(lay_out([(0, WORDS)]), 0), draw(lay_out(OTHER_GRID, TWO_QUESTIONS), 1)]
    with pytest.raises(DataError, match="different questions"):
        combine_spans(members, "max", AnswerConfig(), has_null=True)
