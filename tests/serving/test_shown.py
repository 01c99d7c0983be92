import pytest

from bertvision.serving.answers import Answer, LayerPart, answer_lines, percent, printable, sentence_around

CONTEXT = "It rained. The weir was built in 1887 by Hannah Coyle! Then? Nobody lives there now."


def make_answer(text, **more):
    start = CONTEXT.index(text) if text else 0
    values = {
        "probability": 0.625,
        "no_answer_probability": 0.25,
        "score": 1.0,
        "window": (0, 84),
        "is_question_cut": False,
    }
    return Answer(text, start, start + len(text), **{**values, **more})


def plain(answers, *, is_terminal=False):
    return [line.plain for line in answer_lines(answers, [CONTEXT], is_terminal=is_terminal)]


def test_an_answer_stands_in_brackets_in_its_sentence():
    assert plain([make_answer("1887")]) == [
        "1887",
        "probability 63%; that there is no answer 25%",
        "",
        "The weir was built in [1887] by Hannah Coyle!",
    ]


def test_a_terminal_shows_it_in_another_style_instead():
    lines = list(answer_lines([make_answer("1887")], [CONTEXT], is_terminal=True))
    assert lines[-1].plain == "The weir was built in 1887 by Hannah Coyle!"
    (span,) = lines[-1].spans
    assert (lines[-1].plain[span.start : span.end], span.style) == ("1887", "bold reverse")


def test_where_it_abstains_the_closest_answer_is_shown_as_none_that_is_sure():
    nothing = make_answer("", probability=0.63, no_answer_probability=0.63)
    closest = make_answer("1887", probability=0.3, no_answer_probability=0.63)
    assert plain([nothing, closest, make_answer("rained", probability=0.004)]) == [
        "no sure answer; closest: 1887",
        "probability 30%; that there is no answer 63%",
        "",
        "The weir was built in [1887] by Hannah Coyle!",
        "\nnext best:",
        "   <1%  rained",
    ]
    assert plain([nothing]) == ["(no answer)", "probability 63%"]


def test_where_it_abstains_from_a_long_text_the_line_of_the_closest_answer_is_named():
    text = f"{'It rained. ' * 400}\n\nPython 3.11 is needed."
    start = text.index("3.11")
    closest = Answer("3.11", start, start + 4, 0.3, 0.6, 1.0, (0, 84), False)
    nothing = make_answer("", probability=0.6)
    first, *_ = answer_lines([nothing, closest], [text], is_terminal=False)
    assert first.plain == "no sure answer; closest: 3.11 (line 3)"


def test_only_what_is_certain_is_said_to_be():
    shares = {1: "100%", 0.9999: ">99%", 0.994: "99%", 0.625: "63%", 0.005: "1%", 0.0049: "<1%", 0: "0%"}
    assert {share: percent(share) for share in shares} == shares


def test_a_question_that_lost_its_end_is_told():
    assert "its end was left out" in "".join(plain([make_answer("1887", is_question_cut=True)]))


def test_layers_are_bars_as_long_as_what_they_add():
    parts = (LayerPart("layer 0", 1.0, 1.0), LayerPart("layer 1", 3.0, 1.0), LayerPart("bias", -0.5, -0.5))
    assert plain([make_answer("1887", layers=parts)])[-4:] == [
        f"  layer 0    +2.000  {'█' * 10}",
        f"  layer 1    +4.000  {'█' * 20}",
        f"  bias       -1.000  {'░' * 5}",
        "  sum        +5.000",
    ]


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("rained", "It rained. "),
        ("Then", "Then? "),
        ("now", "Nobody lives there now."),
        ("Coyle! Then", "The weir was built in 1887 by Hannah Coyle! Then? "),
    ],
)
def test_a_sentence_ends_at_its_mark(answer, sentence):
    start = CONTEXT.index(answer)
    assert CONTEXT[slice(*sentence_around(CONTEXT, start, start + len(answer)))] == sentence


def test_of_a_long_sentence_whole_words_are_shown():
    words = [f"word{number:04}" for number in range(200)]  # 9 characters each, with the blank
    context = " ".join(words)
    start = context.index("word0100")
    for shift in range(9):  # wherever the cuts fall within a word
        shown = context[slice(*sentence_around(context, start, start + 8 + shift))].split()
        assert set(shown) <= set(words)
        assert 26 <= words.index("word0100") - words.index(shown[0]) <= 27  # 240 / 9
        assert 26 <= words.index(shown[-1]) - words.index("word0100") <= 28


def test_of_an_endless_sentence_only_the_neighbourhood_is_shown():
    assert sentence_around("a" * 5000, 2500, 2504) == (2260, 2744)


def test_nothing_that_steers_a_terminal_is_printed():
    assert printable("a\x1b[31mb\x07c\nd\u202ee\x9b\u2028f") == "a [31mb c d e  f"
    assert printable("👩\u200d🔬 é") == "👩\u200d🔬 é"


@pytest.mark.parametrize(
    ("ratio", "rule"),
    [
        (0.25, "as asked, no answer where that is more than 0.25 times as likely as the best answer"),
        (1e9, "as asked, always an answer"),
    ],
)
def test_a_threshold_that_was_asked_for_is_told_in_the_terms_of_what_is_shown(ratio, rule):
    lines = [line.plain for line in answer_lines([make_answer("1887")], [CONTEXT], is_terminal=False, null_ratio=ratio)]
    assert lines[1:3] == ["probability 63%; that there is no answer 25%", rule]


def test_in_a_long_text_it_is_told_where_answers_stand():
    context = f"{CONTEXT}\n" * 50  # 4,250 characters
    answer = Answer("1887", 85 + 33, 85 + 37, 0.625, 0.25, 1.0, (85, 169), False)
    nothing = make_answer("")
    lines = [line.plain for line in answer_lines([answer, nothing, answer], [context], is_terminal=False)]
    assert lines[3:] == [
        "The weir was built in [1887] by Hannah Coyle!",
        "line 2, characters 118 to 122 of 4,250",
        "\nnext best:",
        "   63%  (no answer)",
        "   63%  1887  (line 2)",
    ]
