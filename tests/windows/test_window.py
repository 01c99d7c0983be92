import json
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import processors
from transformers import ByT5Tokenizer

from bertvision.data.example import GoldAnswer, Question
from bertvision.data.squad import read_squad_file
from bertvision.errors import BertVisionError, DataError, EncoderError, SettingsError
from bertvision.settings import validate
from bertvision.windows import tokens
from bertvision.windows.batches import collate
from bertvision.windows.tokens import read_layout, read_single_layout, token_ids, tokenise
from bertvision.windows.window import WindowConfig, answer_tokens, cut_windows, window_starts

LETTERS = "abcdefghijklmnopqrst"  # one token each where blanks stand between them
SPECIAL = 3  # [CLS] question [SEP] context [SEP]
SHORT_TEXTS = [
    "the weir was built in 1887 by Hannah Coyle.",
    "  two  blanks,\ta tab and\na line  ",
    "cafe\u0301 d\u2019\u00c9t\u00e9, \u65e5\u672c\u8a9e, \u05e9\u05dc\u05d5\u05dd, \U0001f469\u200d\U0001f467 \uac01!",
    "unbelievably" * 12,
]
# What breaks tokenisers: emoji joined and flagged, marks without a letter, right to left, controls, words past
# WordPiece's 100 letters, line ends of all kinds, CJK, letters that normalise to several, the special tokens' names.
FRAGMENTS = [
    *(
        "the",
        "weir",
        "1887",
        "Coyle",
        ".",
        "'s",
        "-",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "\x0b",
        "\x85",
        "\u2028",
        "\u3000",
    ),
    *("\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f3f3\ufe0f\u200d\U0001f308", "9\ufe0f\u20e3", "\U0001f600"),
    *(
        "e\u0301",
        "\u0301",
        "\u0323\u0308",
        "\u1edf\u0323",
        "\u0e17\u0e35\u0e48",
        "\u0939\u093f\u0928\u094d\u0926\u0941",
    ),
    *("\u05e9\u05dc\u05d5\u05dd", "\u0645\u0631\u062d\u0628\u0627", "\u202e", "\u200f", "\u200b", "\ufeff"),
    *("\x00", "\x07", "\x1f", "\x7f", "\ufffd", "\ufffe", "\U0010ffff", "\ue000"),
    *(
        "x" * 99,
        "x" * 101,
        "supercalifragilistic" * 6,
        "\u65e5\u672c\u8a9e",
        "\u4e2d",
        "\uff76\uff9e",
        "\uac01",
        "\ufb01",
    ),
    *("\u0130", "\u00df", "[SEP]", "[CLS]", "<s>", "</s>"),
]
texts = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), min_size=1, max_size=25).map("".join)
quickly = settings(max_examples=60, deadline=None, derandomize=True)


@pytest.fixture(scope="module", params=["tokenizer", "default_tokenizer"])
def bert_tokenizer(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module", params=["tokenizer", "default_tokenizer", "roberta_tokenizer"])
def any_tokenizer(request):
    return request.getfixturevalue(request.param)


def ask(text="who", context="the weir was built in 1887", *answers):
    return Question("q1", text, context, tuple(GoldAnswer(answer, context.index(answer)) for answer in answers), "weir")


def spaced(letters):
    return " ".join(letters)


def context_letters(window, tokenizer):
    """Spell a window's context tokens."""
    return "".join(tokenizer.convert_ids_to_tokens(window.ids[window.context_at : -1].tolist()))


def own_tokens(tokenizer, text):
    """Ask the tokenizer itself for the ids and characters of a text."""
    own = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    return own["input_ids"], own["offset_mapping"]


# The row of a short text


@pytest.mark.parametrize("context", SHORT_TEXTS)
def test_a_row_of_bert_is_the_tokenizers_own_pair_encoding(bert_tokenizer, context):
    question = ask("Who built it, and when?", context)
    (window,) = cut_windows([question], bert_tokenizer, WindowConfig())
    batch = collate([window], np.array([0]), pad_id=0)
    own = bert_tokenizer(question.text, context)
    assert batch.ids[0].tolist() == own["input_ids"]
    assert batch.segments[0].tolist() == own["token_type_ids"]
    assert batch.mask[0].tolist() == [bool(each) for each in own["attention_mask"]]


def test_ids_alone_are_those_that_come_with_offsets(encoder):
    found = token_ids(encoder.tokenizer, SHORT_TEXTS)
    expected = encoder.tokenizer(SHORT_TEXTS, add_special_tokens=False, return_offsets_mapping=True)
    assert [ids.tolist() for ids in found] == expected["input_ids"]
    pairs = tokenise(encoder.tokenizer, SHORT_TEXTS)
    assert [ids.tolist() for ids, _ in pairs] == expected["input_ids"]
    assert [list(map(tuple, offsets.tolist())) for _, offsets in pairs] == expected["offset_mapping"]
    assert all(array.dtype == np.int32 for array in (*found, *(offsets for _, offsets in pairs)))


def test_a_padded_batch_of_bert_is_the_tokenizers_own(bert_tokenizer):
    asked = [ask("Who built it?", context) for context in SHORT_TEXTS]
    windows = cut_windows(asked, bert_tokenizer, WindowConfig())
    batch = collate(windows, np.arange(len(SHORT_TEXTS)), bert_tokenizer.pad_token_id)
    own = bert_tokenizer(["Who built it?"] * len(SHORT_TEXTS), SHORT_TEXTS, padding="longest")
    assert batch.ids.tolist() == own["input_ids"]
    assert batch.segments.tolist() == own["token_type_ids"]
    assert batch.mask.int().tolist() == own["attention_mask"]


@pytest.mark.parametrize("context", SHORT_TEXTS)
def test_a_row_of_roberta_is_the_tokenizers_own_pair_encoding(roberta_tokenizer, context):
    question = ask("Who built it, and when?", context)
    (window,) = cut_windows([question], roberta_tokenizer, WindowConfig())
    batch = collate([window], np.array([0]), pad_id=1)
    own = roberta_tokenizer(question.text, context)
    assert batch.ids[0].tolist() == own["input_ids"]
    assert "token_type_ids" not in own
    assert batch.segments[0].tolist() == [int(side == 1) for side in own.sequence_ids(0)[:-1]] + [1]


@pytest.mark.parametrize(
    ("name", "before", "between", "after"),
    [
        ("tokenizer", ["[CLS]"], ["[SEP]"], ["[SEP]"]),
        ("default_tokenizer", ["[CLS]"], ["[SEP]"], ["[SEP]"]),
        ("roberta_tokenizer", ["<s>"], ["</s>", "</s>"], ["</s>"]),
    ],
)
def test_the_layout_holds_the_encoders_special_tokens(request, name, before, between, after):
    tokenizer = request.getfixturevalue(name)
    layout = read_layout(tokenizer)
    named = [tokenizer.convert_ids_to_tokens(part.tolist()) for part in layout]
    assert named == [before, between, after]
    assert layout.special == len(before) + len(between) + len(after)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [("tokenizer", ["[CLS]"], ["[SEP]"]), ("roberta_tokenizer", ["<s>"], ["</s>"])],
)
def test_the_layout_of_one_text_has_nothing_between(request, name, before, after):
    tokenizer = request.getfixturevalue(name)
    named = [tokenizer.convert_ids_to_tokens(part.tolist()) for part in read_single_layout(tokenizer)]
    assert named == [before, [], after]


def test_a_tokenizer_without_a_token_before_a_text_is_refused(make_byte_tokenizer):
    only_closing = processors.TemplateProcessing("$A </s>", "$A </s> $B:1 </s>:1", [("</s>", 2)])
    with pytest.raises(EncoderError, match="no token that stands for all of it"):
        read_single_layout(make_byte_tokenizer(only_closing))
    with pytest.raises(EncoderError, match="fast tokenizer"):
        read_single_layout(ByT5Tokenizer())


@pytest.mark.parametrize("blank", [" ", "\n\t", "\u3000"])
def test_blanks_before_a_question_are_left_out(any_tokenizer, blank):
    (plain,) = cut_windows([ask("who?")], any_tokenizer, WindowConfig())
    (indented,) = cut_windows([ask(f"{blank}who?")], any_tokenizer, WindowConfig())
    assert indented.ids.tolist() == plain.ids.tolist()


def test_an_empty_question_leaves_only_the_special_tokens_before_the_context(tokenizer):
    (window,) = cut_windows([ask("", "a b")], tokenizer, WindowConfig())
    assert tokenizer.convert_ids_to_tokens(window.ids.tolist()) == ["[CLS]", "[SEP]", "a", "b", "[SEP]"]


# How a context is cut


@pytest.mark.parametrize(
    ("stride_as", "stride", "expected"),
    [
        ("overlap", 0, ["abcdefgh", "ijklmnop", "qrst"]),
        ("overlap", 3, ["abcdefgh", "fghijklm", "klmnopqr", "pqrst"]),
        ("overlap", 6, ["abcdefgh", "cdefghij", "efghijkl", "ghijklmn", "ijklmnop", "klmnopqr", "mnopqrst"]),
        ("step", 3, ["abcdefgh", "defghijk", "ghijklmn", "jklmnopq", "mnopqrst"]),
        ("step", 8, ["abcdefgh", "ijklmnop", "qrst"]),
        ("step", 100, ["abcdefgh", "ijklmnop", "qrst"]),  # a step past the window's end would skip tokens
    ],
)
def test_stride_is_what_windows_share_or_the_way_between_their_starts(tokenizer, stride_as, stride, expected):
    config = WindowConfig(max_length=SPECIAL + 1 + 8, stride=stride, stride_as=stride_as)
    windows = cut_windows([ask("who", spaced(LETTERS))], tokenizer, config)
    assert [context_letters(window, tokenizer) for window in windows] == expected


@pytest.mark.parametrize("length", [1, 199, 200, 201, 272, 273, 328, 329, 400, 1000])
@pytest.mark.parametrize(("stride_as", "step"), [("overlap", 200 - 128), ("step", 128)])
def test_the_number_of_windows_is_one_and_a_step_for_each_part_beyond_it(default_tokenizer, length, stride_as, step):
    config = WindowConfig(max_length=SPECIAL + 1 + 200, stride=128, stride_as=stride_as)
    windows = cut_windows([ask("who", " ".join(["river"] * length))], default_tokenizer, config)
    assert len(windows) == 1 + math.ceil(max(length - 200, 0) / step)


def test_no_window_begins_after_another_one_has_ended_the_context():
    starts = window_starts(20, 8, WindowConfig(max_length=12, stride=3))
    assert list(starts) == [0, 5, 10, 15]
    assert list(window_starts(8, 8, WindowConfig(max_length=12, stride=3))) == [0]


@pytest.mark.parametrize(("limit", "kept"), [(None, "abcdefghij"), (64, "abcdefghij"), (4, "abcd"), (1, "a")])
def test_a_question_past_its_limit_loses_its_end(tokenizer, limit, kept):
    config = WindowConfig(max_length=32, stride=4, max_question_length=limit)
    (window,) = cut_windows([ask(spaced("abcdefghij"), "the weir")], tokenizer, config)
    tokens = tokenizer.convert_ids_to_tokens(window.ids.tolist())
    assert tokens == ["[CLS]", *kept, "[SEP]", "the", "weir", "[SEP]"]
    assert window.context_at == len(kept) + 2


def test_what_a_shorter_question_leaves_goes_to_the_context(tokenizer):
    config = WindowConfig(max_length=16, stride=0)
    short, long = (cut_windows([ask(text, spaced(LETTERS))], tokenizer, config)[0] for text in ("a", "a b c d"))
    assert (len(short.offsets), len(long.offsets)) == (16 - 3 - 1, 16 - 3 - 4)


def test_windows_stand_in_the_order_of_their_questions(monkeypatch, tokenizer, questions):
    monkeypatch.setattr(tokens, "TEXTS_PER_CALL", 3)  # eight questions: two whole calls and a part
    config = WindowConfig(max_length=20, stride=4)
    together = cut_windows(questions, tokenizer, config)
    alone = [(number, each) for number, one in enumerate(questions) for each in cut_windows([one], tokenizer, config)]
    assert [window.example for window in together] == [number for number, _ in alone]
    assert [window.ids.tolist() for window in together] == [window.ids.tolist() for _, window in alone]
    assert len(together) > len(questions)


def test_no_questions_give_no_windows(tokenizer):
    assert cut_windows([], tokenizer, WindowConfig()) == []


def test_progress_counts_every_context_and_every_question_once(tokenizer, questions, counting):
    cut_windows([*questions, *questions], tokenizer, WindowConfig(), progress=counting)
    assert counting.total == counting.done == len(questions) + 2 * len(questions)  # contexts are tokenised once


# Labels


@pytest.mark.parametrize(
    ("answer", "expected"),  # windows abcdefgh, fghijklm, klmnopqr, pqrst behind [CLS] who [SEP]
    [
        ("a", [(3, 3), (0, 0), (0, 0), (0, 0)]),
        ("g h", [(3 + 6, 3 + 7), (3 + 1, 3 + 2), (0, 0), (0, 0)]),
        ("h i", [(0, 0), (3 + 2, 3 + 3), (0, 0), (0, 0)]),
        ("k l m", [(0, 0), (3 + 5, 3 + 7), (3, 3 + 2), (0, 0)]),
        ("s t", [(0, 0), (0, 0), (0, 0), (3 + 3, 3 + 4)]),
        ("a b c d e f g h i", [(0, 0)] * 4),  # longer than a window
        (None, [(0, 0)] * 4),
    ],
)
def test_a_label_is_zero_where_a_window_does_not_hold_the_whole_answer(tokenizer, answer, expected):
    config = WindowConfig(max_length=SPECIAL + 1 + 8, stride=3)
    question = ask("who", spaced(LETTERS), *([] if answer is None else [answer]))
    windows = cut_windows([question], tokenizer, config)
    assert [(window.start, window.end) for window in windows] == expected


@pytest.mark.parametrize("answer", ["1887", "887", "8", " 1887", "in 1887\n"])
def test_a_label_spans_whole_tokens_and_no_blanks(default_tokenizer, answer):
    context = "built in 1887\nby Coyle"
    (window,) = cut_windows([ask("when", context, answer)], default_tokenizer, WindowConfig())
    first, last = window.offsets[window.start - window.context_at], window.offsets[window.end - window.context_at]
    assert context[first[0] : last[1]] == ("in 1887" if "in" in answer else "1887")


@pytest.mark.parametrize("answer", ["\n1887", "1887\n\t", " \n1887\n"])
def test_blanks_around_an_answer_are_not_labelled_even_where_they_are_tokens(roberta_tokenizer, answer):
    context = "in \n1887\n\tby"
    (window,) = cut_windows([ask("when", context, answer)], roberta_tokenizer, WindowConfig())
    first, last = window.offsets[window.start - window.context_at], window.offsets[window.end - window.context_at]
    assert context[first[0] : last[1]] == "1887"


def test_the_first_of_several_answers_is_the_label(tokenizer):
    (window,) = cut_windows([ask("who", "a b c d e", "d", "b")], tokenizer, WindowConfig())
    assert (window.start, window.end) == (3 + 3, 3 + 3)


@pytest.mark.parametrize(("answer", "expected"), [("g h", [0, 0, 1, 1]), ("s t", [1, 1, 1, 0]), (None, [1] * 4)])
def test_a_window_of_an_answerable_question_tells_whether_the_answer_is_in_it(tokenizer, answer, expected):
    config = WindowConfig(max_length=SPECIAL + 1 + 8, stride=3)
    question = ask("who", spaced(LETTERS), *([] if answer is None else [answer]))
    windows = cut_windows([question], tokenizer, config, answerable=True)
    assert [window.label for window in windows] == expected
    assert {window.label for window in cut_windows([question], tokenizer, config)} == {0}


def test_nothing_is_labelled_when_labels_are_not_wanted(tokenizer):
    question = Question("q1", "who", "a b c", (GoldAnswer("not there", -1),), "weir")
    (window,) = cut_windows([question], tokenizer, WindowConfig(), labelled=False)
    assert (window.start, window.end) == (0, 0)


@pytest.mark.parametrize(
    ("start", "end", "expected"),  # tokens at characters 0-3, 3-5 and 8-9; 5-8 belongs to none
    [(0, 1, (0, 0)), (2, 4, (0, 1)), (3, 5, (1, 1)), (4, 9, (1, 2)), (5, 9, (2, 2)), (0, 7, (0, 1)), (5, 8, None)],
)
def test_answer_tokens_are_those_that_hold_its_characters(start, end, expected):
    offsets = np.array([[0, 3], [3, 5], [8, 9]], dtype=np.int32)
    assert answer_tokens(offsets, start, end) == expected


# What cannot be cut


def test_a_question_that_fills_the_window_is_refused_by_name(tokenizer):
    config = WindowConfig(max_length=16, stride=0, max_question_length=None)
    with pytest.raises(DataError, match=r"'q1' has 30 tokens, which leaves 0 of 16 .* raise windows\.max_length"):
        cut_windows([ask(spaced("a" * 30), "b")], tokenizer, config)


@pytest.mark.parametrize(("question", "fits"), [("a", True), ("a b", False), ("a b c", False)])
def test_an_overlap_as_long_as_the_rest_of_the_window_is_refused(tokenizer, question, fits):
    config = WindowConfig(max_length=16, stride=11)  # a question of one token leaves 12
    if fits:
        assert len(cut_windows([ask(question, spaced(LETTERS))], tokenizer, config)) == 1 + (20 - 12)
    else:
        with pytest.raises(DataError, match="overlap of 11; raise windows.max_length, or lower windows.stride"):
            cut_windows([ask(question, spaced(LETTERS))], tokenizer, config)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"max_length": 32, "stride": 28}, "an overlap .* of 28 leaves no room in windows of 32"),
        ({"max_length": 384, "stride": 384}, "an overlap .* of 384 leaves no room in windows of 384"),
        ({"stride": 0, "stride_as": "step"}, "a step .* of 0 never reaches the end"),
        ({"stride": -1}, "stride"),
        ({"max_length": 7}, "max_length"),
        ({"max_question_length": 0}, "max_question_length"),
        ({"stride_as": "both"}, "stride_as"),
    ],
)
def test_windows_that_no_question_could_be_cut_into_are_no_setting(config, message):
    with pytest.raises(SettingsError, match=message):
        validate(WindowConfig, config, "test")


@pytest.mark.parametrize("context", ["\u0301\u0323", "\x00\x07", "\u200b", " \n"])
def test_a_context_without_any_token_is_refused(bert_tokenizer, context):
    with pytest.raises(DataError, match="question 'q1': its context .* holds no token"):
        cut_windows([ask("who", context)], bert_tokenizer, WindowConfig())


@pytest.mark.parametrize("answer", ["\u200b", "\u0301", "\x07"])
def test_an_answer_without_any_token_is_refused(bert_tokenizer, answer):
    with pytest.raises(DataError, match="question 'q1': no token of this encoder holds its answer"):
        cut_windows([ask("who", f"a {answer} b", answer)], bert_tokenizer, WindowConfig())


def test_a_tokenizer_without_offsets_is_refused():
    with pytest.raises(EncoderError, match="fast tokenizer"):
        cut_windows([ask()], ByT5Tokenizer(), WindowConfig())


@pytest.mark.parametrize(
    "post_processor",
    [
        None,
        processors.TemplateProcessing("$A </s>", "$A </s> $B:1 </s>:1", [("</s>", 2)]),
        processors.TemplateProcessing("$A </s> <s>", "$A </s> $B:1 </s>:1 <s>:1", [("<s>", 0), ("</s>", 2)]),
        processors.TemplateProcessing("<s> $A </s>", "<s> $B:1 </s> $A </s>", [("<s>", 0), ("</s>", 2)]),
    ],
    ids=["no special tokens", "only closing ones", "the first token last", "the context before the question"],
)
def test_a_tokenizer_without_a_token_before_the_question_is_refused(post_processor, make_byte_tokenizer):
    with pytest.raises(EncoderError, match="no place for 'no answer'"):
        cut_windows([ask()], make_byte_tokenizer(post_processor), WindowConfig())


@pytest.mark.parametrize("field", ["context", "question"])
def test_half_a_surrogate_pair_in_a_file_is_an_error_of_the_data(tokenizer, tmp_path, field):
    asked = {"context": "the weir", "question": "who", field: "the \ud83d weir"}  # JSON can hold it, UTF-8 cannot
    qas = [{"id": "q1", "question": asked["question"], "is_impossible": True, "answers": []}]
    path = tmp_path / "data.json"
    path.write_text(json.dumps({"data": [{"title": "", "paragraphs": [{"context": asked["context"], "qas": qas}]}]}))
    with pytest.raises(DataError, match="q1"):
        cut_windows(read_squad_file(path).examples, tokenizer, WindowConfig())


# Any text at all


@st.composite
def cases(draw):
    """A question on some text, answered by any slice of it that a reader would let through, and how to cut it."""
    context = draw(texts)
    assume(context.strip())
    begin = draw(st.integers(0, len(context) - 1))
    answer = context[begin : draw(st.integers(begin + 1, len(context)))]
    answers = (GoldAnswer(answer, begin),) if answer.strip() and draw(st.booleans()) else ()
    max_length = draw(st.integers(8, 48))
    stride_as = draw(st.sampled_from(["overlap", "step"]))
    stride = draw(st.integers(0, max_length - 5) if stride_as == "overlap" else st.integers(1, max_length))
    limit = draw(st.none() | st.integers(1, 8))
    config = WindowConfig(max_length=max_length, stride=stride, stride_as=stride_as, max_question_length=limit)
    return Question("q1", draw(texts), context, answers, ""), config


def room(question, tokenizer, config):
    """Count by hand the context tokens of a window, and those that it shares with the next."""
    special = len(tokenizer("a", "b")["input_ids"]) - 2
    asked = own_tokens(tokenizer, question.text.lstrip())[0][: config.max_question_length]
    capacity = config.max_length - special - len(asked)
    return capacity, config.stride if config.stride_as == "overlap" else max(capacity - config.stride, 0)


def holding(offsets, question):
    """List the tokens that hold a character of the answer."""
    (answer, start), *_ = question.answers
    stripped_at = start + len(answer) - len(answer.lstrip())
    stop = stripped_at + len(answer.strip())
    return [
        place for place, (first, last) in enumerate(offsets) if first < stop and last > stripped_at and first < last
    ]


def is_cuttable(question, tokenizer, config):
    _, offsets = own_tokens(tokenizer, question.context)
    capacity, shared = room(question, tokenizer, config)
    has_room = capacity > (shared if config.stride_as == "overlap" else 0)
    return bool(offsets) and has_room and (question.is_impossible or bool(holding(offsets, question)))


@quickly
@given(case=cases())
def test_any_text_is_cut_or_refused_for_a_reason(any_tokenizer, case):
    question, config = case
    if is_cuttable(question, any_tokenizer, config):
        assert cut_windows([question], any_tokenizer, config)
    else:
        with pytest.raises(BertVisionError, match="'q1'"):
            cut_windows([question], any_tokenizer, config)


@quickly
@given(case=cases())
def test_windows_without_what_they_share_are_the_whole_context(any_tokenizer, case):
    question, config = case
    assume(is_cuttable(question, any_tokenizer, config))
    windows = cut_windows([question], any_tokenizer, config)
    ids, offsets = own_tokens(any_tokenizer, question.context)
    _, shared = room(question, any_tokenizer, config)
    new = [slice(0 if number == 0 else shared, len(window.offsets)) for number, window in enumerate(windows)]
    closing = len(windows[0]) - windows[0].context_at - len(windows[0].offsets)
    contexts = [window.ids[window.context_at : len(window) - closing] for window in windows]
    assert [tuple(pair) for window, part in zip(windows, new, strict=True) for pair in window.offsets[part]] == offsets
    assert [number for context, part in zip(contexts, new, strict=True) for number in context[part]] == ids


@quickly
@given(case=cases())
def test_every_window_but_the_last_is_full_and_none_is_longer(any_tokenizer, case):
    question, config = case
    assume(is_cuttable(question, any_tokenizer, config))
    *others, last = cut_windows([question], any_tokenizer, config)
    _, shared = room(question, any_tokenizer, config)
    assert all(len(window) == config.max_length for window in others)
    assert len(last) <= config.max_length
    assert not others or len(last.offsets) > shared  # it adds something


@quickly
@given(case=cases())
def test_a_label_spans_the_tokens_that_hold_the_answer_and_no_more(any_tokenizer, case):
    question, config = case
    assume(is_cuttable(question, any_tokenizer, config) and question.answers)
    _, offsets = own_tokens(any_tokenizer, question.context)
    held = holding(offsets, question)
    characters = {place for token in held for place in range(*offsets[token])}
    capacity, shared = room(question, any_tokenizer, config)
    for number, window in enumerate(cut_windows([question], any_tokenizer, config)):
        first = number * (capacity - shared)
        if held[0] < first or held[-1] >= first + capacity:
            assert (window.start, window.end) == (0, 0)
        else:
            span = window.offsets[window.start - window.context_at : window.end - window.context_at + 1]
            assert characters <= set(range(span[0][0], span[-1][1]))
            assert characters.intersection(range(*span[0]))
            assert characters.intersection(range(*span[-1]))
            assert window.end - window.start == held[-1] - held[0]


@quickly
@given(text=texts)
def test_no_token_begins_or_ends_before_the_one_on_its_left(any_tokenizer, text):
    assume(own_tokens(any_tokenizer, text)[0])
    for window in cut_windows([ask("who", text)], any_tokenizer, WindowConfig(max_length=64, stride=8)):
        assert np.all(np.diff(window.offsets, axis=0) >= 0)
        assert window.offsets.min() >= 0
        assert window.offsets.max() <= len(text)
