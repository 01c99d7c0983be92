import math
import re
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

import bertvision
from bertvision.data.example import Question
from bertvision.errors import DataError, SettingsError
from bertvision.model_folder import load_model
from bertvision.serving.reader import Asking, Reader
from bertvision.windows.window import WindowConfig, cut_windows

CONTEXT = "the weir was built in 1887 by hannah coyle. the river was by the stone, where the weir was built in 1912"
QUESTIONS = ["who built the weir?", "when was the weir built?", "where was the river?"]


@pytest.fixture
def reader(shared_reader) -> Reader:
    return shared_reader


def scored_spans(folder, question, context):
    """Return the null score of every window and the score of every span, (score, start, end), one window at a time."""
    model = load_model(folder)
    spans, nulls = [], []
    for window in cut_windows(
        [Question("q", question, context, (), "")], model.encoder.tokenizer, model.config.windows
    ):
        ids = torch.from_numpy(window.ids).long()[None]
        types = (torch.arange(ids.shape[1])[None] >= window.context_at).long()
        with torch.no_grad():
            states = model.encoder.model(ids, token_type_ids=types, output_hidden_states=True).hidden_states
            logits = model.head(torch.stack(states, dim=1), torch.ones_like(ids).bool(), types)[0].double().numpy()
        nulls.append(logits[0].sum())
        for first, (start, _) in enumerate(window.offsets):
            for last in range(first, min(first + 4, len(window.offsets))):
                at = window.context_at
                score = logits[at + first, 0] + logits[at + last, 1]
                spans.append((score, int(start), int(window.offsets[last][1])))
    return min(nulls), sorted(spans, reverse=True)


def bare(answer):
    """Return an answer without punctuation at its ends and an article, as answers are told apart."""
    return re.sub(r"^(a|an|the) ", "", answer.strip(" .,")) or answer


def expected_shares(null, spans, context, temperature):
    """Share out probabilities among no answer and the 20 best spans of whole words; overlapping ones are one answer."""
    words = [match.span() for match in re.finditer(r"\w+|[^\w\s]", context)]
    starts, ends = {start for start, _ in words}, {end for _, end in words}
    listed = [(score, start, end) for score, start, end in spans if start in starts and end in ends][:20]
    scores, pools = {}, []
    for score, start, end in listed:
        scores.setdefault((start, end), score)
    for (start, end), score in scores.items():
        for first, stop, members in pools:
            if max(first, start) < min(stop, end) or bare(context[start:end]) == bare(context[first:stop]):
                members.append(score)
                break
        else:
            pools.append((start, end, [score]))
    weights = {context[first:stop]: np.exp(members).sum() ** (1 / temperature) for first, stop, members in pools}
    weights[""] = np.exp(null / temperature)
    return {text: weight / sum(weights.values()) for text, weight in weights.items()}


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_is_the_likeliest_of_all_windows_with_its_characters_and_probability(
    make_folder, question, temperature
):
    folder = make_folder()
    (folder / "calibration.json").write_text(f'{{"threshold": 0.0, "temperature": {temperature}}}')
    null, spans = scored_spans(folder, question, CONTEXT)
    shares = expected_shares(null, spans, CONTEXT, temperature)
    best = max((text for text in shares if text), key=shares.get)
    found = bertvision.load(folder, device="cpu")(question, CONTEXT, null_threshold=math.inf)
    assert (found.text, CONTEXT[found.start : found.end]) == (best, best)
    expected = next(score for score, start, end in spans if CONTEXT[start:end] == best)
    assert found.score == pytest.approx(expected, abs=1e-4)
    assert found.probability == pytest.approx(shares[best], abs=1e-4)
    assert found.no_answer_probability == pytest.approx(shares[""], abs=1e-4)
    assert found.window[0] <= found.start < found.end <= found.window[1]
    assert found.window[1] - found.window[0] < len(CONTEXT)


@pytest.mark.parametrize("threshold", [-3.0, 0.0, 1.5, 4.0])
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_likelier_of_answer_and_no_answer_is_given_and_all_probabilities_add_up_to_one(
    make_folder, question, threshold
):
    folder = make_folder()
    (folder / "calibration.json").write_text(f'{{"threshold": {threshold}, "temperature": 2.0}}')
    found = bertvision.load(folder, device="cpu")(question, CONTEXT, top_k=100)
    likeliest = max(answer.probability for answer in found if answer.text)
    assert sum(answer.probability for answer in found) == pytest.approx(1, abs=1e-9)
    assert (found[0].text == "") == (found[0].no_answer_probability > likeliest)
    assert found[0].probability == max(likeliest, found[0].no_answer_probability)
    assert {answer.probability for answer in found if not answer.text} == {found[0].no_answer_probability}


def test_candidates_are_different_answers_of_whole_words(reader):
    for question in QUESTIONS:
        spans = [(each.start, each.end) for each in reader(question, CONTEXT, top_k=100) if each.text]
        assert all(one[1] <= other[0] or other[1] <= one[0] for one, other in combinations(spans, 2))
        for start, end in spans:
            assert not (CONTEXT[start].isalnum() and CONTEXT[max(start - 1, 0) : start].isalnum())
            assert not (CONTEXT[end - 1].isalnum() and CONTEXT[end : end + 1].isalnum())


@pytest.mark.parametrize("threshold", [-math.inf, math.inf])
def test_others_than_the_given_answer_hold_a_letter_a_digit_or_a_sign_of_their_own(reader, threshold):
    found = reader(QUESTIONS[0], "weir . ! 1887 -- 😀 … ”", top_k=100, max_answer_length=1, null_threshold=threshold)
    others = {answer.text for answer in found[1:]} - {""}
    assert others | {found[0].text} >= {"weir", "1887", "😀"}
    assert others <= {"weir", "1887", "😀"}


def test_a_context_of_punctuation_alone_has_no_next_best_answer(reader):
    found = reader(QUESTIONS[0], ". ! -- .", top_k=100, null_threshold=-math.inf)
    assert [answer.text for answer in found] == [""]


def test_no_answer_is_given_where_its_odds_exceed_the_threshold(make_folder):
    folder = make_folder()
    reader = bertvision.load(folder, device="cpu")
    null, spans = scored_spans(folder, QUESTIONS[0], CONTEXT)
    shares = expected_shares(null, spans, CONTEXT, 1.0)
    best = max((text for text in shares if text), key=shares.get)
    odds = math.log(shares[""] / shares[best])
    above = reader(QUESTIONS[0], CONTEXT, null_threshold=odds + 0.01)
    below = reader(QUESTIONS[0], CONTEXT, null_threshold=odds - 0.01)
    assert above.text == best
    assert (below.text, below.start, below.end) == ("", 0, 0)
    assert below.probability == below.no_answer_probability == above.no_answer_probability
    assert reader.null_ratio(odds) == pytest.approx(shares[""] / shares[best], rel=1e-3)


def test_no_answer_scores_less_by_the_calibrated_threshold_whichever_is_asked_for(make_folder):
    folder = make_folder()
    (folder / "calibration.json").write_text('{"threshold": -1.5, "temperature": 2.0}')
    null, spans = scored_spans(folder, QUESTIONS[0], CONTEXT)
    shares = expected_shares(null + 1.5, spans, CONTEXT, 2.0)
    for asked in (None, 0.0, math.inf):
        found = bertvision.load(folder, device="cpu")(QUESTIONS[0], CONTEXT, null_threshold=asked)
        assert found.no_answer_probability == pytest.approx(shares[""], abs=1e-4)


def test_the_threshold_of_the_calibration_is_the_default(make_folder):
    folder = make_folder()
    for threshold, is_given in ((1e6, True), (-1e6, False)):
        (folder / "calibration.json").write_text(f'{{"threshold": {threshold}, "temperature": 1.0}}')
        assert bool(bertvision.load(folder, device="cpu")(QUESTIONS[0], CONTEXT).text) == is_given


def test_top_k_lists_the_answer_given_and_then_the_best_of_the_others(make_folder):
    folder = make_folder()
    null, spans = scored_spans(folder, QUESTIONS[1], CONTEXT)
    found = bertvision.load(folder, device="cpu")(QUESTIONS[1], CONTEXT, top_k=6, null_threshold=-math.inf)
    shares = expected_shares(null, spans, CONTEXT, 1.0)
    texts = sorted((text for text in shares if text), key=lambda text: -shares[text])
    assert [answer.text for answer in found] == ["", *texts[:5]]
    assert all(CONTEXT[answer.start : answer.end] == answer.text for answer in found)
    assert sum(answer.probability for answer in found) <= 1 + 1e-9


def test_a_longest_answer_can_be_asked_for(reader):
    found = reader(QUESTIONS[0], CONTEXT, top_k=20, max_answer_length=1)
    assert all(" " not in answer.text for answer in found)


def test_lists_are_answered_one_by_one(reader):
    contexts = [CONTEXT, "hannah coyle built the weir", "the river was in the stone"]
    alone = [reader(question, context).text for question, context in zip(QUESTIONS, contexts, strict=True)]
    assert [answer.text for answer in reader(QUESTIONS, contexts)] == alone
    assert [answer.text for answer in reader(QUESTIONS, CONTEXT)] == [reader(each, CONTEXT).text for each in QUESTIONS]
    assert [answer.text for answer in reader(QUESTIONS[:1] * 3, contexts)] == [
        reader(QUESTIONS[0], each).text for each in contexts
    ]
    assert [len(answers) for answers in reader(QUESTIONS, CONTEXT, top_k=2)] == [2, 2, 2]
    assert reader([], []) == []
    assert reader([], CONTEXT) == []


def test_answers_that_differ_by_an_article_or_punctuation_are_one(reader):
    context = "hannah coyle. the weir, by hannah coyle , weir . 1887 ! (1887)"
    found = [each.text for each in reader(QUESTIONS[0], context, top_k=100, null_threshold=math.inf) if each.text]
    bare = [re.sub(r"^the ", "", text.strip(" .,!()")) for text in found]
    assert len(found) > 2
    assert len(set(bare)) == len(bare)


def test_no_answer_reaches_over_a_blank_line(reader):
    words = ("weir", "2024-117", "river", "1", "hannah", "stone")
    contexts = [f"{one}\n \n{other}" for one in words for other in words]
    for answer in reader([QUESTIONS[0]] * len(contexts), contexts, null_threshold=math.inf):
        assert answer.text
        assert "\n" not in answer.text


def test_a_question_about_several_texts_has_one_answer_from_the_text_that_holds_it(reader):
    contexts = ["the river was in the stone", "hannah coyle built it", "in 1887 by coyle"]
    how = {"null_threshold": math.inf, "max_answer_length": 1}  # so few that all of them are listed
    found = reader(QUESTIONS[0], contexts, top_k=100, **how)
    assert sum(each.probability for each in found) == pytest.approx(1)
    assert {each.context for each in found if each.text} == {0, 1, 2}
    for each in found:
        assert contexts[each.context][each.start : each.end] == each.text
        assert each.window[0] <= each.start <= each.end <= each.window[1] <= len(contexts[each.context])
    assert reader(QUESTIONS[0], contexts) == reader(QUESTIONS[0], tuple(contexts), top_k=1)[0]
    backwards = reader(QUESTIONS[0], contexts[::-1], **how)
    assert (backwards.text, backwards.context) == (found[0].text, 2 - found[0].context)
    both = [each.text for each in reader(QUESTIONS[:2], [contexts, CONTEXT])]
    assert both == [reader(QUESTIONS[0], contexts).text, reader(QUESTIONS[1], CONTEXT).text]


@pytest.mark.parametrize("tokens", [1, 64, 4096])
def test_answers_do_not_depend_on_batches_or_company(reader, tokens):
    contexts = [CONTEXT, "hannah coyle built the weir", CONTEXT[20:70], "1887", CONTEXT * 3]
    alone = [reader(QUESTIONS[0], context) for context in contexts]
    served, config = reader.served, reader.served.config
    changed = config.model_copy(update={"answers": config.answers.model_copy(update={"batch_tokens": tokens})})
    other = Reader(replace(served, config=changed))
    together = other([QUESTIONS[0]] * 5, contexts)
    for one, other in zip(alone, together, strict=True):
        assert (one.text, one.start, one.end, one.window) == (other.text, other.start, other.end, other.window)
        assert one.score == pytest.approx(other.score, rel=1e-4, abs=1e-5)
        assert one.probability == pytest.approx(other.probability, rel=1e-4, abs=1e-5)


def test_the_layers_of_an_answer_add_up_to_its_score(reader):
    found = reader(QUESTIONS, CONTEXT, top_k=3, layers=True)
    for answers in found:
        for answer in answers:
            assert [part.name for part in answer.layers] == ["layer 0", "layer 1", "layer 2", "bias"]
            assert sum(part.start + part.end for part in answer.layers) == pytest.approx(answer.score, abs=1e-4)
    assert reader(QUESTIONS[0], CONTEXT).layers is None


def test_a_head_that_is_no_sum_over_layers_has_no_layers_to_show(make_folder):
    reader = bertvision.load(make_folder(head="layer_attention"), device="cpu")
    assert reader(QUESTIONS[0], CONTEXT).layers is None
    with pytest.raises(SettingsError, match="no sum over layers"):
        reader(QUESTIONS[0], CONTEXT, layers=True)


def test_a_model_without_no_answer_always_answers(make_folder):
    found = bertvision.load(make_folder("squad1"), device="cpu")(QUESTIONS[0], CONTEXT, null_threshold=-math.inf)
    assert found.text
    assert found.no_answer_probability is None


def test_a_question_that_loses_its_end_says_so(reader):
    assert not reader("who built the weir", CONTEXT).is_question_cut
    assert not reader("who built the weir in the river when", CONTEXT).is_question_cut  # 8 tokens
    assert reader("who built the weir in the river when was", CONTEXT).is_question_cut


@pytest.mark.parametrize(
    ("question", "context", "message"),
    [
        ("", CONTEXT, "question: is empty"),
        (" \n\t", CONTEXT, "question: is blank"),
        ("who?", "", "context: is empty"),
        ("who?", "\u2003 \n", "context: is blank"),
        (None, CONTEXT, "question: expected a text, got NoneType"),
        ("who?", 1887, "context: expected a text, got int"),
        (b"who?", CONTEXT, "question: expected a text, got bytes"),
        (["who?", 3], CONTEXT, "question 1: expected a text, got int"),
        (["who?", "when?"], [CONTEXT] * 3, "2 questions and 3 contexts"),
        ("who\ud800?", CONTEXT, r"question: character 3 is U\+D800"),
        ("who?", "the weir\udcff", r"context: character 8 is U\+DCFF"),
        ("who?", "\x00\x01", "holds no token"),
    ],
)
def test_what_is_no_question_or_context_is_refused_in_one_line(reader, question, context, message):
    with pytest.raises(DataError, match=message) as caught:
        reader(question, context)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"top_k": 0}, "top_k is 0"), ({"max_answer_length": 0}, "is 0"), ({"null_threshold": math.nan}, "not a number")],
)
def test_settings_that_mean_nothing_are_refused(reader, options, message):
    with pytest.raises(SettingsError, match=message):
        reader("who?", CONTEXT, **options)


@pytest.mark.parametrize(
    "context",
    [
        "the \x00weir was\x07 built in 1887",
        "🏞️ the weir — “built” in 1887 e\u0301",
        "\ufeffthe weir",
        "<b>the weir</b> & [bold]1887[/bold]",
        "x",
    ],
)
def test_odd_characters_keep_their_places(reader, context):
    for answer in reader("who\x00 built it?", context, top_k=20, null_threshold=math.inf):
        assert context[answer.start : answer.end] == answer.text


class Counted:
    """Progress that keeps how far its bars came."""

    def __init__(self):
        self.totals, self.steps = [], []

    @contextmanager
    def bar(self, what, total):
        self.totals.append(total)
        yield self

    def advance(self, amount, note=None):
        self.steps.append(amount)

    def say(self, message):
        raise AssertionError(message)


def test_progress_is_told_of_every_batch_of_windows(reader):
    context, told = "the weir was built in 1887 by hannah coyle. " * 40, Counted()
    question = Question("q", "who?", context, (), "")
    windows = cut_windows([question], reader.served.tokenizer, reader.served.config.windows, labelled=False)
    assert reader("who?", context, progress=told) == reader("who?", context)
    assert told.totals == [len(windows)]
    assert sum(told.steps) == len(windows)
    assert max(told.steps) <= 64 // 20  # windows of 20 tokens, batches of 64


def test_a_megabyte_is_answered(make_folder):
    reader = bertvision.load(make_folder(windows=WindowConfig(max_length=128, stride=16)), device="cpu")
    context = " ".join(["w" * 199] * 5_000)  # words of more than 100 letters are one token each
    assert len(context) == 1_000_000 - 1
    (answer,) = reader(["who?"], context + " 1887", max_answer_length=1, null_threshold=math.inf)
    assert answer.text in ("w" * 199, "1887")
    assert (context + " 1887")[answer.start : answer.end] == answer.text


def test_pairs_can_be_answered_without_being_checked_again(reader):
    assert reader.answer_pairs([(QUESTIONS[0], CONTEXT)], Asking(top_k=2)) == [reader(QUESTIONS[0], CONTEXT, top_k=2)]
