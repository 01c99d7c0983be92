import numpy as np
import pytest

from bertvision.data.example import ChoiceRow, Sentence, TextRow
from bertvision.kinds.kind import Cutting
from bertvision.tasks import KINDS
from bertvision.windows.cut import cut_choices, cut_rows, cut_words
from bertvision.windows.window import IGNORED, WindowConfig, cut_windows

CONFIG = WindowConfig(max_length=16, stride=2)
TAGS = ("O", "B-PER", "I-PER")
SENTENCES = [
    Sentence("0", ("hannah", "coyle", "built"), ("B-PER", "I-PER", "O"), 0),
    Sentence("1", ("who", "was", "coyle"), ("O", "O", "B-PER"), 0),
]


def same(one, other):
    """Return whether windows are alike in everything."""
    pairs = zip(one, other, strict=True)
    return all(
        all(np.array_equal(getattr(a, name), getattr(b, name)) for name in a.__dataclass_fields__) for a, b in pairs
    )


def test_questions_are_cut_with_their_spans_or_with_a_class_for_each_window(questions, tokenizer):
    spans = KINDS["span"].cut(questions, (), Cutting(tokenizer, CONFIG))
    classes = KINDS["answerable"].cut(questions, ("answer", "no answer"), Cutting(tokenizer, CONFIG))
    assert same(spans, cut_windows(questions, tokenizer, CONFIG))
    assert same(classes, cut_windows(questions, tokenizer, CONFIG, answerable=True))
    assert {window.label for window in spans} == {0}
    assert [window.label for window in classes] == [int(window.start == 0) for window in classes]
    assert {window.label for window in classes} == {0, 1}


@pytest.mark.parametrize(("kind", "label"), [("class", 2), ("labels", (0, 1)), ("number", 1.5)])
def test_rows_are_cut_with_the_label_of_their_kind(tokenizer, kind, label):
    rows = [TextRow("a", ("who built the weir?", "by the river " * 9), label)]
    found = KINDS[kind].cut(rows, (), Cutting(tokenizer, CONFIG))
    assert same(found, cut_rows(rows, tokenizer, 16, kind))
    assert (found[0].label, len(found[0])) == (label, 16)


def test_choices_are_cut_into_a_window_for_each_ending(tokenizer):
    rows = [ChoiceRow("a", "hannah", ("the weir", "the river", "1887"), 2)]
    found = KINDS["choice"].cut(rows, ("0", "1", "2"), Cutting(tokenizer, CONFIG))
    assert same(found, cut_choices(rows, tokenizer, 16))
    assert [window.label for window in found] == [2, 2, 2]


def test_words_are_cut_with_the_numbers_of_their_tags(tokenizer):
    found = KINDS["tags"].cut(SENTENCES, TAGS, Cutting(tokenizer, CONFIG))
    assert same(found, cut_words(SENTENCES, TAGS, tokenizer, CONFIG))
    assert [window.label.tolist() for window in found] == [[IGNORED, 1, 2, 0, IGNORED], [IGNORED, 0, 0, 1, IGNORED]]


def test_a_sentences_neighbours_are_around_it_where_the_settings_say_so(tokenizer):
    config = CONFIG.model_copy(update={"document_context": True})
    assert [len(window) for window in KINDS["tags"].cut(SENTENCES, TAGS, Cutting(tokenizer, config))] == [8, 8]
    assert [len(window) for window in KINDS["tags"].cut(SENTENCES, TAGS, Cutting(tokenizer, CONFIG))] == [5, 5]


def test_labels_that_are_missing_or_new_do_not_matter_where_they_are_not_looked_at(questions, tokenizer):
    unknown = [Sentence("0", ("in", "1887"), ("O", "B-DAT"), 0), Sentence("1", ("weir",), None, 0)]
    assert len(KINDS["tags"].cut(unknown, TAGS, Cutting(tokenizer, CONFIG, labelled=False))) == 2
    rows = [TextRow("a", ("the weir",), None)]
    assert len(KINDS["class"].cut(rows, ("a", "b"), Cutting(tokenizer, CONFIG, labelled=False))) == 1
    choices = [ChoiceRow("a", "hannah", ("the weir", "the river"), None)]
    assert len(KINDS["choice"].cut(choices, ("0", "1"), Cutting(tokenizer, CONFIG, labelled=False))) == 2
    for kind in ("span", "answerable"):
        found = KINDS[kind].cut(questions, (), Cutting(tokenizer, CONFIG, labelled=False))
        assert {(window.start, window.end, window.label) for window in found} == {(0, 0, 0)}


@pytest.mark.parametrize("kind", ["span", "answerable", "class", "choice", "tags"])
def test_progress_is_told_for_every_kind(questions, tokenizer, counting, kind):
    examples = {
        "class": [TextRow("a", ("the weir",), 0)],
        "choice": [ChoiceRow("a", "hannah", ("the weir", "the river"), 0)],
        "tags": SENTENCES,
    }
    KINDS[kind].cut(examples.get(kind, questions), TAGS, Cutting(tokenizer, CONFIG, progress=counting))
    assert counting.done == counting.total > 0
