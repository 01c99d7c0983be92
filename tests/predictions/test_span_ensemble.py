import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.errors import DataError, SettingsError
from bertvision.predictions.logits import grid_of
from bertvision.predictions.prediction import AnswerConfig
from bertvision.predictions.span_ensemble import ScoredText, combine_spans
from bertvision.predictions.spans import decode_spans
from bertvision.predictions.texts import text_grid
from bertvision.windows.window import Window

quickly = settings(max_examples=60, deadline=None, derandomize=True)
CONTEXT = "old weir by the mill"
WORDS = [(0, 3), (4, 8), (9, 11), (12, 15), (16, 20)]
PIECES = [(0, 1), (1, 3), (4, 6), (6, 8), (9, 11), (12, 15), (16, 18), (18, 20)]  # another tokenizer's


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
def test_the_order_of_members_does_not_matter(how):
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
