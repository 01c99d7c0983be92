"""Which places of a text lie inside a word, where no answer begins or ends; no torch in here."""

import re
import unicodedata

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]

# Han, Kana, Thai, Lao, Tibetan, Burmese, Khmer and Tai are written without blanks between words, and Korean particles
# stand at their nouns without one: there the tokenizer's bounds are the best that there are.
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u2e80-\u2fdf\u3005-\u3007"
    "\u3031-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\ua9e0-\ua9ff\uaa60-\uaadf"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U0001b000-\U0001b16f\U00020000-\U000323af"
)
IS_UNSPACED = re.compile(f"[{UNSPACED}]")
JOINERS = "_\u00ad\u200c"  # soft hyphens, and what stands between two parts of a word
# 1,066 and 3.5 are one word each; so is the s of Coyle's, but an answer may end before the apostrophe.
JOINT = re.compile(r"(?<=\d)[.,](?=\d)|(?<=\S)\u200d(?=\S)")  # the second joins emoji, and letters
CLITIC = re.compile(r"(?<=\w['’])[^\W\d_](?!\w)")


def inside_words(text: str) -> Bools:
    """Return for every place of a text, its end included, whether a word begins before it and ends behind it."""
    is_word, is_mark = np.zeros(len(text) + 1, np.bool_), np.zeros(len(text) + 1, np.bool_)
    kinds = {letter: _kind(letter) for letter in set(text)}
    is_word[:-1] = [kinds[letter][0] for letter in text]
    is_mark[:-1] = [kinds[letter][1] for letter in text]
    is_inside = is_word & np.roll(is_word, 1) | is_mark  # behind the last letter stands nothing, before the first too
    for match in JOINT.finditer(text):
        is_inside[[match.start(), match.end()]] = True
    is_inside[[match.start() for match in CLITIC.finditer(text)]] = True
    is_inside[0] = False
    return is_inside


def _kind(letter: str) -> tuple[bool, bool]:
    """Return whether a character is part of words between blanks, and whether it belongs to the one before it."""
    category = unicodedata.category(letter)
    is_word = category[0] in "LNM" or letter in JOINERS
    return is_word and IS_UNSPACED.match(letter) is None, category[0] == "M"
