import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertvision.data.example import ChoiceRow, GoldAnswer, Question, Sentence, Split, TextRow
from bertvision.data.split import hold_out, write_held_out, write_squad
from bertvision.data.squad import read_squad
from bertvision.errors import DataError


def split_of(rows):
    """Make a split of (title, context) pairs."""
    questions = [Question(f"q{n}", "?", context, (), title) for n, (title, context) in enumerate(rows)]
    return Split("train.json", tuple(questions), 3, "abc")


ROWS = st.lists(
    st.tuples(st.sampled_from(["", "Weir", "Mill", "Ruhr", "Rhine"]), st.sampled_from("abcdefgh")), min_size=1
)


@given(rows=ROWS, share=st.sampled_from([0.01, 0.1, 0.3, 0.5]))
def test_no_article_and_no_paragraph_is_on_both_sides(rows, share):
    try:
        train, held_out = hold_out(split_of(rows), share)
    except DataError:
        return
    assert train.examples
    assert held_out.examples
    assert sorted(train.examples + held_out.examples, key=lambda each: int(each.id[1:])) == list(
        split_of(rows).examples
    )
    assert not {each.title for each in train.examples if each.title} & {each.title for each in held_out.examples}
    assert not {each.context for each in train.examples} & {each.context for each in held_out.examples}


def test_articles_are_taken_in_the_order_of_their_hashes_while_they_do_not_overshoot_the_share():
    titles = [f"Article {n}" for n in range(20)]
    _, held_out = hold_out(split_of([(title, f"{title} {n}") for title in titles for n in range(3)]), 0.22)
    order = sorted(titles, key=lambda title: hashlib.sha256(title.encode()).hexdigest())
    assert {each.title for each in held_out.examples} == set(order[:4])  # 12 of 60: five articles are 25%


def test_more_articles_are_held_out_with_a_larger_share_and_none_is_given_back():
    split = split_of([(f"Article {n}", f"text {n}") for n in range(30)])
    few, many = ({each.id for each in hold_out(split, share)[1].examples} for share in (0.1, 0.4))
    assert few < many


def test_the_rest_keeps_its_origin_and_the_slice_says_what_it_is():
    train, held_out = hold_out(split_of([("Weir", "a"), ("Mill", "b")]), 0.1)
    assert (train.name, train.dropped, train.sha256) == ("train.json", 3, "abc")
    assert (held_out.name, held_out.dropped, held_out.sha256) == ("train.json, held out", 0, "abc")


@pytest.mark.parametrize("rows", [[("Weir", "a"), ("Weir", "b")], [("Weir", "a"), ("Mill", "a")]])
def test_what_cannot_be_parted_is_refused(rows):
    with pytest.raises(DataError, match="would take all of its"):
        hold_out(split_of(rows), 0.1)


def test_a_written_file_is_read_as_the_same_questions(tmp_path):
    questions = (
        Question("a", "When?", "built in 1887", (GoldAnswer("1887", 9), GoldAnswer("in 1887", 6)), "Weir"),
        Question("b", "Why?", "built in 1887", (), "Weir"),
        Question("c", "Wer?", "Größe: \ud7ff", (GoldAnswer("Größe", 0),), ""),
    )
    write_squad(tmp_path / "slice.json", questions)
    assert read_squad(str(tmp_path / "slice.json")).examples == questions
    content = json.loads((tmp_path / "slice.json").read_text())
    assert [len(article["paragraphs"]) for article in content["data"]] == [1, 1]


def test_a_title_that_is_no_text_can_be_hashed_and_written(tmp_path):
    _, held_out = hold_out(split_of([("half \ud800", "a"), ("Mill", "b")]), 0.1)
    write_squad(tmp_path / "slice.json", held_out.examples)
    assert (tmp_path / "slice.json").exists()


def rows_of(count):
    return tuple(TextRow(str(n), (f"text {n % 10}",), n % 2) for n in range(count))


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_of_rows_those_with_the_same_text_go_together(share):
    train, held_out = hold_out(Split("rows.csv", rows_of(40), 0, "abc"), share)
    assert len(held_out.examples) == share * 40  # each text stands in four rows
    assert {row.texts for row in train.examples}.isdisjoint(row.texts for row in held_out.examples)
    again = hold_out(Split("rows.csv", rows_of(40), 0, "abc"), share)
    assert again == (train, held_out)


@pytest.mark.parametrize("documents", [4, 1])
def test_of_sentences_whole_documents_are_held_out_unless_there_is_one(documents):
    sentences = tuple(Sentence(str(n), ("word", str(n)), None, n % documents) for n in range(20))
    train, held_out = hold_out(Split("words.conll", sentences, 0, None), 0.25)
    assert len(held_out.examples) == 5
    if documents > 1:
        assert len({each.document for each in held_out.examples}) == 1
        assert {each.document for each in train.examples}.isdisjoint(each.document for each in held_out.examples)


def test_of_choices_those_with_the_same_beginning_go_together():
    rows = tuple(ChoiceRow(str(n), f"beginning {n // 2}", ("one", "two"), 0) for n in range(20))
    train, held_out = hold_out(Split("swag.csv", rows, 0, None), 0.2)
    assert len(held_out.examples) == 4
    assert {row.context for row in train.examples}.isdisjoint(row.context for row in held_out.examples)


def test_held_out_rows_are_written_by_their_ids(tmp_path):
    write_held_out(tmp_path / "held_out.json", rows_of(3))
    assert json.loads((tmp_path / "held_out.json").read_text()) == ["0", "1", "2"]
