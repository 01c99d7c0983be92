import pytest

from bertvision.data.example import ChoiceRow
from bertvision.errors import DataError
from bertvision.windows import tokens
from bertvision.windows.cut import cut_choices


def choice(name="c1", context="the weir", endings=("was built", "in stone", "by a river"), label=1):
    return ChoiceRow(name, context, endings, label)


@pytest.mark.parametrize("name", ["tokenizer", "roberta_tokenizer"])
def test_every_ending_is_a_pair_with_the_context(request, name):
    tokenizer = request.getfixturevalue(name)
    windows = cut_choices([choice()], tokenizer, 64)
    assert [each.ids.tolist() for each in windows] == [
        tokenizer("the weir", ending)["input_ids"] for ending in choice().endings
    ]


def test_the_windows_of_a_row_are_neighbours_and_know_the_right_ending(monkeypatch, tokenizer, counting):
    monkeypatch.setattr(tokens, "TEXTS_PER_CALL", 2)
    rows = [choice(label=label) for label in (2, 0, None, 1, 2)]
    windows = cut_choices(rows, tokenizer, 64, counting)
    assert [window.example for window in windows] == [row for row in range(5) for _ in range(3)]
    assert [window.label for window in windows] == [label for label in (2, 0, 0, 1, 2) for _ in range(3)]
    assert counting.total == counting.done == 5


def test_a_long_pair_is_cut_as_the_tokenizer_itself_cuts_it(tokenizer):
    row = choice(context=" ".join("a" * 9), endings=(" ".join("b" * 3), " ".join("b" * 20)))
    windows = cut_choices([row], tokenizer, 12)
    for window, ending in zip(windows, row.endings, strict=True):
        own = tokenizer(row.context, ending, truncation="longest_first", max_length=12)
        assert window.ids.tolist() == own["input_ids"]


@pytest.mark.parametrize("endings", [("one", "two"), ()])
def test_rows_with_other_numbers_of_endings_are_refused_by_name(tokenizer, endings):
    with pytest.raises(DataError, match=rf"row 'c2' has {len(endings)} endings, row 'c1' has 3"):
        cut_choices([choice(), choice("c2", endings=endings)], tokenizer, 64)


def test_an_ending_and_context_without_any_token_are_refused_by_name(tokenizer):
    with pytest.raises(DataError, match="row 'c1'.*holds no token"):
        cut_choices([choice(context=" ", endings=("", "a"))], tokenizer, 64)


def test_no_rows_give_no_windows(tokenizer):
    assert cut_choices([], tokenizer, 64) == []
