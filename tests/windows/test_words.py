from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.data.example import Sentence
from bertvision.errors import DataError
from bertvision.windows.batches import collate
from bertvision.windows.cut import cut_words, window_of_each
from bertvision.windows.window import IGNORED, NO_WORD, WindowConfig

TAGS = ("O", "B-PER", "I-PER", "B-LOC")
words_of_text = st.lists(
    st.sampled_from(["the", "weir", "zyx", "by", "hannahs", "1887.", "?"]), min_size=1, max_size=40
)


def sentence(words, tags=None, name="s1", document=0):
    words = tuple(words.split()) if isinstance(words, str) else tuple(words)
    return Sentence(name, words, tags if tags is None else tuple(tags.split()), document)


def pieces(window, tokenizer):
    return tokenizer.convert_ids_to_tokens(window.ids.tolist())


def read_words(windows):
    """List which word of which sentence is read where."""
    return [(each.example, int(word)) for each in windows for word in each.words if word != NO_WORD]


def test_the_first_piece_of_a_word_has_its_tag(tokenizer):
    given_words = sentence("hannah zx built the weirs", "B-PER I-PER O O B-LOC")
    (window,) = cut_words([given_words], TAGS, tokenizer, WindowConfig())
    assert pieces(window, tokenizer) == ["[CLS]", "hannah", "z", "##x", "built", "the", "weir", "##s", "[SEP]"]
    assert window.label.tolist() == [IGNORED, 1, 2, IGNORED, 0, 0, 3, IGNORED, IGNORED]
    assert window.words.tolist() == [NO_WORD, 0, 1, NO_WORD, 2, 3, 4, NO_WORD, NO_WORD]
    assert (window.context_at, window.offsets.shape) == (9, (0, 2))


def test_tags_are_padded_with_what_is_ignored(tokenizer):
    given_words = [sentence("the weir", "O B-LOC"), sentence("hannah coyle built it", "B-PER I-PER O O")]
    labels = collate(cut_words(given_words, TAGS, tokenizer, WindowConfig()), np.arange(2), 0).labels
    assert labels.tolist()[0] == [IGNORED, 0, 3, *[IGNORED] * 4]
    assert labels.tolist()[1] == [IGNORED, 1, 2, 0, 0, IGNORED, IGNORED]


@pytest.mark.parametrize("text", ["the weir , built in 1887 ( by D'Arcy-Coyle ) U.S. \u65e5\u672c \u00c9t\u00e9"])
def test_pieces_and_words_are_those_of_the_tokenizer_for_split_words(default_tokenizer, text):
    (window,) = cut_words([sentence(text)], TAGS, default_tokenizer, WindowConfig())
    own = default_tokenizer(text.split(), is_split_into_words=True)
    assert window.ids.tolist() == own["input_ids"]
    firsts = [own.word_ids().index(word) for word in range(len(text.split()))]
    assert [int(np.flatnonzero(window.words == word)[0]) for word in range(len(text.split()))] == firsts


def test_byte_level_pieces_have_the_blank_before_their_word(roberta_tokenizer):
    (window,) = cut_words([sentence("ab c")], TAGS, roberta_tokenizer, WindowConfig())
    assert pieces(window, roberta_tokenizer) == ["<s>", "\u0120", "a", "b", "\u0120", "c", "</s>"]
    assert window.words.tolist() == [NO_WORD, 0, NO_WORD, NO_WORD, 1, NO_WORD, NO_WORD]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    sentences=st.lists(words_of_text, min_size=1, max_size=4),
    max_length=st.integers(8, 24),
    share=st.floats(0, 0.99),
    stride_as=st.sampled_from(["overlap", "step"]),
    document_context=st.booleans(),
    documents=st.integers(1, 3),
)
def test_every_word_is_labelled_in_exactly_one_window(
    tokenizer, sentences, max_length, share, stride_as, document_context, documents
):
    stride = int(share * (max_length - 5)) if stride_as == "overlap" else 1 + int(share * max_length)
    config = WindowConfig(max_length=max_length, stride=stride, stride_as=stride_as, document_context=document_context)
    given_words = [
        sentence(words, " ".join(TAGS[len(word) % 4] for word in words), document=place // documents)
        for place, words in enumerate(sentences)
    ]
    windows = cut_words(given_words, TAGS, tokenizer, config)
    expected = [(place, word) for place, words in enumerate(sentences) for word in range(len(words))]
    assert Counter(read_words(windows)) == Counter(expected)
    assert [window.example for window in windows] == sorted(window.example for window in windows)
    for window in windows:
        assert 2 < len(window) <= max_length
        own = sentences[window.example]
        for label, word, token in zip(window.label, window.words, window.ids, strict=True):
            assert label == (IGNORED if word == NO_WORD else len(own[word]) % 4)
            assert word == NO_WORD or token == tokenizer(own[word], add_special_tokens=False)["input_ids"][0]


def test_a_word_is_read_where_it_stands_farthest_from_both_ends(tokenizer):
    letters = "abcdefghijklmnop"
    config = WindowConfig(max_length=10, stride=4)
    windows = cut_words([sentence(" ".join(letters))], TAGS, tokenizer, config)
    # Windows of eight, abcdefgh, efghijkl and ijklmnop, share four: the first half of these is nearer to the first end.
    assert ["".join(letters[word] for word in window.words if word != NO_WORD) for window in windows] == [
        "abcdef",
        "ghij",
        "klmnop",
    ]


def test_of_windows_that_tie_the_first_is_taken():
    places = np.array([0, 3, 4, 7], dtype=np.int32)
    assert window_of_each(places, [(0, 5), (3, 8)]).tolist() == [0, 0, 1, 1]
    assert window_of_each(np.array([3], dtype=np.int32), [(0, 5), (2, 7)]).tolist() == [0]


# Neighbours


def around(tokenizer, texts, documents, max_length, **more):
    given_words = [sentence(text, document=document) for text, document in zip(texts, documents, strict=True)]
    config = WindowConfig(max_length=max_length, stride=0, **more)
    windows = cut_words(given_words, TAGS, tokenizer, config)
    return ["".join(pieces(window, tokenizer)[1:-1]) for window in windows], windows


def test_neighbours_of_the_same_document_fill_a_window_from_both_sides(tokenizer):
    texts = ["a b c d", "e f", "g h i j"]
    seen, windows = around(tokenizer, texts, [0, 0, 0], 8, document_context=True)
    assert seen == ["abcdef", "cdefgh", "efghij"]
    assert [window.words.tolist()[1:-1] for window in windows] == [
        [0, 1, 2, 3, -1, -1],
        [-1, -1, 0, 1, -1, -1],
        [-1, -1, 0, 1, 2, 3],
    ]
    assert around(tokenizer, texts, [0, 1, 1], 8, document_context=True)[0] == ["abcd", "efghij", "efghij"]
    assert around(tokenizer, texts, [0, 0, 0], 8)[0] == ["abcd", "ef", "ghij"]


def test_an_odd_room_goes_to_what_follows(tokenizer):
    assert around(tokenizer, ["a b c", "d", "e f g"], [0, 0, 0], 8, document_context=True)[0][1] == "bcdefg"


def test_a_sentence_that_fills_its_windows_needs_no_neighbours(tokenizer):
    seen, _ = around(tokenizer, ["a b", "c d e f g h i j", "k"], [0, 0, 0], 8, document_context=True)
    assert seen[1:3] == ["cdefgh", "ij"]


# What has no tag, and what cannot be cut


def test_words_without_tags_can_be_predicted(tokenizer):
    (window,) = cut_words([sentence("the weir")], TAGS, tokenizer, WindowConfig())
    assert set(window.label.tolist()) == {IGNORED}
    assert read_words([window]) == [(0, 0), (0, 1)]


def test_tags_that_are_not_wanted_are_not_looked_at(tokenizer):
    (window,) = cut_words([sentence("the weir", "O B-XYZ")], TAGS, tokenizer, WindowConfig(), labelled=False)
    assert set(window.label.tolist()) == {IGNORED}


@pytest.mark.parametrize("nothing", ["\x07", "\u200b", "\u0301"])
def test_a_word_that_leaves_no_piece_is_an_unknown_one(tokenizer, nothing):
    (window,) = cut_words([sentence(["the", nothing, "weir"], "O B-LOC O")], TAGS, tokenizer, WindowConfig())
    assert pieces(window, tokenizer) == ["[CLS]", "the", "[UNK]", "weir", "[SEP]"]
    assert window.label.tolist()[1:-1] == [0, 3, 0]


@pytest.mark.parametrize(
    ("given_words", "message"),
    [
        (sentence("the weir", "O B-XYZ"), r"'s1': the tag 'B-XYZ' is not one of this task's \(O, B-PER"),
        (sentence("the weir", "O"), "'s1' has 2 words and 1 tags"),
        (sentence(""), "'s1' has no words"),
    ],
)
def test_a_sentence_that_cannot_be_tagged_is_refused_by_name(tokenizer, given_words, message):
    with pytest.raises(DataError, match=message):
        cut_words([given_words], TAGS, tokenizer, WindowConfig())


def test_progress_counts_every_different_word_once(tokenizer, counting):
    cut_words([sentence("the weir the river")] * 3, TAGS, tokenizer, WindowConfig(), progress=counting)
    assert counting.total == counting.done == 3


def test_no_sentences_give_no_windows(tokenizer):
    assert cut_words([], TAGS, tokenizer, WindowConfig()) == []
