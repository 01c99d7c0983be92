import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.data.example import TextRow
from bertvision.errors import DataError
from bertvision.windows import tokens
from bertvision.windows.batches import collate
from bertvision.windows.cut import cut_rows, longest_first

TEXTS = [
    "the weir was built in 1887.",
    "  two  blanks,\ta tab ",
    "d\u2019\u00c9t\u00e9, \u65e5\u672c\u8a9e \U0001f600!",
]


def row(*texts, label=0, name="r1"):
    return TextRow(name, texts, label)


@pytest.fixture(params=["tokenizer", "default_tokenizer", "roberta_tokenizer"])
def any_tokenizer(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("texts", [*((text,) for text in TEXTS), *((text, TEXTS[0]) for text in TEXTS)])
def test_a_row_is_the_tokenizers_own_encoding(any_tokenizer, texts):
    (window,) = cut_rows([row(*texts)], any_tokenizer, 64, "class")
    batch, own = collate([window], np.array([0]), pad_id=0), any_tokenizer(*texts)
    assert batch.ids[0].tolist() == own["input_ids"]
    if "token_type_ids" in own:
        assert batch.segments[0].tolist() == own["token_type_ids"]
    else:  # RoBERTa's, which an encoder never sees
        assert batch.segments[0].any() == (len(texts) == 2)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(first=st.integers(0, 20), second=st.integers(1, 20), max_length=st.integers(8, 30))
def test_a_long_pair_is_cut_as_the_tokenizer_itself_cuts_it(tokenizer, first, second, max_length):
    texts = " ".join("a" * first), " ".join("b" * second)
    (window,) = cut_rows([row(*texts)], tokenizer, max_length, "class")
    own = tokenizer(*texts, truncation="longest_first", max_length=max_length)
    assert window.ids.tolist() == own["input_ids"]
    assert window.context_at == own["token_type_ids"].index(1)


@pytest.mark.parametrize("length", [5, 6, 7, 50])
def test_a_long_text_loses_its_end(tokenizer, length):
    (window,) = cut_rows([row(" ".join("a" * length))], tokenizer, 8, "class")
    pieces = tokenizer.convert_ids_to_tokens(window.ids.tolist())
    assert pieces == ["[CLS]", *"a" * min(length, 6), "[SEP]"]
    assert window.context_at == len(window)


@pytest.mark.parametrize(
    ("lengths", "room", "kept"), [((3, 4), 7, (3, 4)), ((10, 2), 7, (5, 2)), ((9, 9), 7, (3, 4)), ((9, 8), 7, (4, 3))]
)
def test_the_longer_text_is_cut_first(lengths, room, kept):
    assert longest_first(*lengths, room) == kept


def test_labels_become_numbers_of_their_kind(tokenizer):
    def labels(kind, *values):
        windows = cut_rows([row("the weir", label=value) for value in values], tokenizer, 16, kind)
        return collate(windows, np.arange(len(values)), pad_id=0).labels

    assert labels("class", 2, 0).tolist() == [2, 0]
    assert labels("class", 2, 0).dtype == torch.int64
    assert labels("number", 3, 0.5).tolist() == [3.0, 0.5]
    assert labels("number", 3, 1).dtype == torch.float32
    assert labels("labels", (1, 0, 1), (0, 0, 0)).tolist() == [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    assert labels("labels", (1, 0, 1), (0, 0, 0)).dtype == torch.float32


@pytest.mark.parametrize("kind", ["class", "number", "labels"])
def test_rows_without_labels_can_be_predicted(tokenizer, kind):
    windows = cut_rows([row("the weir", label=None), row("stone", label=None)], tokenizer, 16, kind)
    assert len(collate(windows, np.arange(2), pad_id=0).labels) == 2


@pytest.mark.parametrize(("texts", "message"), [(("",), "holds no token"), (("\x07", " "), "holds no token")])
def test_a_row_without_any_token_is_refused_by_name(tokenizer, texts, message):
    with pytest.raises(DataError, match=f"row 'r7'.*{message}"):
        cut_rows([row("the weir"), row(*texts, name="r7")], tokenizer, 16, "class")


def test_one_of_two_texts_may_be_empty(tokenizer):
    (window,) = cut_rows([row("the weir", "")], tokenizer, 16, "class")
    assert tokenizer.convert_ids_to_tokens(window.ids.tolist()) == ["[CLS]", "the", "weir", "[SEP]", "[SEP]"]


@pytest.mark.parametrize("count", [0, 3])
def test_a_row_has_one_text_or_two(tokenizer, count):
    with pytest.raises(DataError, match=f"row 'r1' has {count} texts"):
        cut_rows([row(*["the weir"] * count)], tokenizer, 16, "class")


def test_windows_stand_in_the_order_of_their_rows(monkeypatch, tokenizer, counting):
    monkeypatch.setattr(tokens, "TEXTS_PER_CALL", 3)
    rows = [row(" ".join("a" * length), label=length) for length in range(1, 9)]
    windows = cut_rows(rows, tokenizer, 16, "class", counting)
    assert [window.example for window in windows] == list(range(8))
    assert [len(window) for window in windows] == [2 + length for length in range(1, 9)]
    assert [window.label for window in windows] == list(range(1, 9))
    assert counting.total == counting.done == 8
