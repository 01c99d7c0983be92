import pytest

from bertvision.data.example import GoldAnswer, Question
from bertvision.scoring.label_tables import (
    group_answer_lengths,
    group_context_lengths,
    group_positions,
    group_questions,
    group_types,
    question_word,
)


def ids(grouping):
    return {name: [each.id for each in group] for name, group in grouping.groups.items()}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("What is it?", "what"),
        ("In WHICH year?", "which"),
        ("Who's there, and why?", "who"),  # the first counts
        ("To whom did it go?", "who"),
        ("Whose is it?", "who"),
        ("How many were there?", "how many/much"),
        ("How much did it cost?", "how many/much"),
        ("How did many die?", "how"),
        ("At how", "how"),
        ("Whatever was built?", "other"),
        ("Name the river.", "other"),
        ("", "other"),
    ],
)
def test_the_first_question_word_counts(text, word):
    assert question_word(text) == word


def test_questions_are_told_apart_by_having_an_answer(questions):
    assert ids(group_types(questions)) == {"has answer": ["when", "who"], "no answer": ["why", "where"]}


@pytest.mark.parametrize(
    ("words", "group"),
    [(1, "1"), (2, "2"), (3, "3"), (4, "4-5"), (5, "4-5"), (6, "6-10"), (10, "6-10"), (11, "11 or more")],
)
def test_the_first_gold_is_counted_in_words(words, group):
    question = Question("q", "?", "x", (GoldAnswer("w " * words, 0), GoldAnswer("w", 0)), "")
    assert [name for name, found in ids(group_answer_lengths([question])).items() if found] == [group]


@pytest.mark.parametrize(
    ("start", "group"),
    [(0, "first quarter"), (24, "first quarter"), (25, "second quarter"), (50, "third quarter"), (99, "last quarter")],
)
def test_the_place_of_the_first_gold_counts(start, group):
    question = Question("q", "?", "x" * 100, (GoldAnswer("x", start), GoldAnswer("x", 0)), "")
    assert [name for name, found in ids(group_positions([question])).items() if found] == [group]


def test_what_has_no_answer_or_no_place_is_in_no_group(ask):
    unplaced = Question("q", "?", "x", (GoldAnswer("x", -1),), "")
    assert not any(group_answer_lengths([ask("none")]).groups.values())
    assert not any(group_positions([ask("none"), unplaced]).groups.values())


def test_contexts_are_cut_at_quartiles_and_equal_lengths_stay_together(ask):
    def lengths(*words):
        asked = [ask(str(place)) for place in range(len(words))]
        return ids(group_context_lengths(asked, {str(place): count for place, count in enumerate(words)}, "words"))

    assert lengths(8, 1, 2, 3, 4, 5, 6, 7) == {
        "first quarter, 1-2": ["1", "2"],
        "second quarter, 3-4": ["3", "4"],
        "third quarter, 5-6": ["5", "6"],
        "last quarter, 7-8": ["0", "7"],
    }
    assert lengths(9, 9, 9) == {
        "first quarter, 9-9": ["0", "1", "2"],
        "second quarter": [],
        "third quarter": [],
        "last quarter": [],
    }


def test_contexts_are_grouped_by_words_and_by_word_pieces_where_these_are_known(ask):
    asked = [ask("short", context="a b"), ask("long", context="a b c d")]
    *_, by_words = group_questions(asked)
    assert by_words.title == "context length in words"
    assert ids(by_words) == {
        "first quarter, 2-2": ["short"],
        "second quarter": [],
        "third quarter": [],
        "last quarter, 4-4": ["long"],
    }
    *_, again, by_pieces = group_questions(asked, {"short": 9, "long": 7})
    assert again == by_words
    assert by_pieces.title == "context length in word pieces"
    assert (by_pieces.groups["first quarter, 7-7"], by_pieces.groups["last quarter, 9-9"]) == ([asked[1]], [asked[0]])
