import pytest

from bertvision.kinds.kind import Golds
from bertvision.kinds.spans import SQUAD2
from bertvision.scoring.answers import score_answers
from bertvision.scoring.disagreements import snippet_of, to_texts
from bertvision.tasks import TASKS


def find_disagreements(questions, a, b, count):
    return SQUAD2.disagreements(Golds("squad2", TASKS["squad2"], questions, ()), a, b, count)


LONG = " ".join(f"word{number:03}" for number in range(100))


def test_the_first_questions_that_exactly_one_gets_right_are_listed(questions, scored):
    a, b = scored("1887", "Leeds", "Leeds", ""), scored("1888", "Leeds", "", "Leeds")
    found = find_disagreements(questions, a, b, 9)
    assert [(each.plain["id"], each.plain["right"]) for each in found] == [
        ("when", "only A"),
        ("why", "only B"),
        ("where", "only A"),
    ]
    assert [each.plain["id"] for each in find_disagreements(questions, a, b, 2)] == ["when", "why"]
    assert find_disagreements(questions, a, b, 0) == []


def test_one_is_laid_out_with_all_that_a_reader_needs(questions, scored):
    a, b = scored("1887", "", "", ""), scored("", "", "", "")
    assert to_texts(find_disagreements(questions, a, b, 1)) == [
        "1. only A right: when (Weir)\n"
        " question  who?\n"
        "     gold  1887 | in 1887\n"
        "        A  1887\n"
        "        B  (no answer)\n"
        "  context  The weir was built in «1887» by Hannah Coyle of Leeds."
    ]


def test_without_a_gold_the_answer_given_is_shown(questions, scored):
    a, b = scored("", "", "", ""), scored("", "", "Leeds", "")
    (text,) = to_texts(find_disagreements(questions, a, b, 1))
    assert "     gold  (no answer)\n" in text
    assert text.endswith("by Hannah Coyle of «Leeds».")


def test_an_answer_that_stands_nowhere_shows_the_context_from_its_beginning(questions, scored):
    a, b = scored("", "", "", ""), scored("", "", "Bradford", "")
    assert "  context  The weir was built" in to_texts(find_disagreements(questions, a, b, 1))[0]


def test_long_contexts_are_cut_at_blanks_around_the_answer():
    start = LONG.index("word050")
    snippet = snippet_of(LONG, start, len("word050"))
    words = snippet.split()
    assert words[0] == words[-1] == "..."
    assert "«word050»" in words
    assert all(word.strip("«»") in LONG.split() for word in words[1:-1])
    assert 170 <= len(snippet) <= 200


@pytest.mark.parametrize("word", ["word000", "word099"])
def test_nothing_is_left_out_beyond_an_end(word):
    snippet = snippet_of(LONG, LONG.index(word), len(word))
    assert snippet.startswith("...") == (word == "word099")
    assert snippet.endswith("...") == (word == "word000")


def test_lines_have_at_most_80_columns_and_no_control_characters(ask):
    asked = [ask("i" * 90, "word050 word051", text=f"what\x1b[2J\n{LONG}?", context=LONG, title="t" * 50)]
    a, b = (score_answers("", asked, {"i" * 90: text}) for text in ("word050 word051", LONG))
    (text,) = to_texts(find_disagreements(asked, a, b, 1))
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
