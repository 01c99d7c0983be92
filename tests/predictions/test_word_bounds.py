import pytest

from bertvision.predictions.word_bounds import inside_words


def words(text):
    """Cut a text at every place that is not inside a word; blanks alone are left out."""
    places = [0, *(place for place in range(1, len(text)) if not inside_words(text)[place]), len(text)]
    parts = [text[first:stop] for first, stop in zip(places, places[1:], strict=False)]
    return [part for part in parts if part.strip()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("In 1066, Coyle", ["In", "1066", ",", "Coyle"]),
        ("1,066 of 3.5 km² (2nd)", ["1,066", "of", "3.5", "km²", "(", "2nd", ")"]),
        ("Coyle's dog", ["Coyle", "'s", "dog"]),
        ("don’t", ["don", "’t"]),
        ("l'Allemagne", ["l", "'", "Allemagne"]),
        ("well-known", ["well", "-", "known"]),
        ("e\u0301tude cafe\u0301.", ["e\u0301tude", "cafe\u0301", "."]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),  # vowel signs and viramas are marks
        ("مَدْرَسَة", ["مَدْرَسَة"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),  # a joiner stands between the two parts of one word
        ("東京1066年", ["東", "京", "1066", "年"]),
        ("カタカナ", ["カ", "タ", "カ", "ナ"]),
        ("ที่", ["ที่"]),  # one letter with two marks
        ("한국은", ["한", "국", "은"]),
        ("👩\u200d🔬", ["👩\u200d🔬"]),
        ("snake_case", ["snake_case"]),
        ("", []),
    ],
)
def test_words_are_runs_of_letters_digits_and_marks_where_a_script_has_blanks(text, expected):
    assert words(text) == expected


def test_a_text_begins_and_ends_outside_words():
    for text in ("weir", "\u0301weir", "1.", ""):
        found = inside_words(text)
        assert len(found) == len(text) + 1
        assert not found[0]
        assert not found[-1]
