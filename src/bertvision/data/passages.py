"""A context -> its sentences, names and numbers; all contexts of a file -> which names are of one kind.

And a question -> the other contexts of a file that have most of its words.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import NamedTuple

from bertvision.data.near_miss_words import (
    AFTER_PERSON,
    BEFORE_PLACE,
    CARDINALS,
    DEMONYMS,
    FUNCTION_WORDS,
    KINDS_BY_WORD,
    MONTHS,
    ORDINALS,
    TITLES,
    WEEKDAYS,
)

WORD = re.compile(r"\w+(?:[-'’](?!s\b)\w+)*")
UPPER = "A-ZÀ-ÖØ-Þ"
_NAME_WORD = rf"(?:[{UPPER}][\w&-]*(?:['’][{UPPER}]\w+)?|(?:[{UPPER}]\.)+)"
NAME = re.compile(rf"\b(?:(?:Mr|Mrs|Ms|Dr|St)\. ?)?{_NAME_WORD}(?:(?: of the| of| de| von| van)? {_NAME_WORD})*")
# A point ends a sentence unless it stands behind one letter or a title. It comes first, so that what is before it is
# looked at there alone: ten times as fast.
SENTENCE_END = re.compile(r"[.!?](?<!\b\w.)(?<!\bMr.)(?<!\bMrs.)(?<!\bMs.)(?<!\bDr.)(?<!\bSt.)[\"'”’)]*\s+")
NUMERAL = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:st|nd|rd|th|s)?")
YEAR = re.compile(r"(?:1\d|20)\d\d")
WORD_KINDS = {
    word: kind
    for kind, words in {"month": MONTHS, "weekday": WEEKDAYS, "ordinal": ORDINALS, "cardinal": CARDINALS}.items()
    for word in words
}
STEM = 5  # letters that two forms of a word have in common, such as release and released
UNKNOWN = "unknown"  # kind of a name
LOOSE = "used as "  # begins the kinds of names that stand alike and need not be alike
MANY, ATTESTED = 500, 3  # in a file of many contexts, a name or number used once or twice may be a slip
LONGEST_NAME = 4  # words: longer runs of capitals are titles of works and headings


class Place(NamedTuple):
    """A name or number in a text: its characters, what it is, and of which kind."""

    start: int
    end: int
    text: str
    kind: str


@dataclass(frozen=True)
class PassageSentence:
    """A sentence's characters in the context, and the stems of its words."""

    start: int
    end: int
    stems: frozenset[str]


@dataclass(frozen=True)
class Passage:
    """A context, taken apart when it is asked."""

    text: str

    @cached_property
    def sentences(self) -> tuple[PassageSentence, ...]:
        """Return the sentences."""
        ends = [found.end() for found in SENTENCE_END.finditer(self.text)]
        bounds = zip([0, *ends], [*ends, len(self.text)], strict=True)
        return tuple(
            PassageSentence(start, end, stems_of(self.text[start:end])) for start, end in bounds if start < end
        )

    @cached_property
    def stems(self) -> frozenset[str]:
        """Return the stems of all words."""
        return stems_of(self.text)

    @cached_property
    def is_cased(self) -> bool:
        """Return whether capital letters tell names apart."""
        return any(letter.isupper() for letter in self.text)

    @cached_property
    def numbers(self) -> tuple[Place, ...]:
        """Return the numbers and dates."""
        return tuple(numbers_in(self.text))

    @cached_property
    def found_names(self) -> tuple[tuple[int, str], ...]:
        """Return where names could be: runs of capitalised words, with the character at which each begins."""
        starts = {sentence.start for sentence in self.sentences}
        return tuple(_runs(self.text, starts))


def attested(num_contexts: int) -> int:
    """Return how often a file uses a name or number at least that is taken for one."""
    return ATTESTED if num_contexts >= MANY else 1


def stems_of(text: str) -> frozenset[str]:
    """Return the beginnings of a text's words, in lower case."""
    return frozenset(word[:STEM] for word in words_of(text))


def words_of(text: str) -> list[str]:
    """Return a text's words in lower case; of a genitive, the s is a word of its own."""
    return WORD.findall(text.lower())


def topic_words(text: str) -> set[str]:
    """Return the stems of the words that say what a text is about."""
    return {word[:STEM] for word in words_of(text) if word not in FUNCTION_WORDS}


def numbers_in(text: str) -> Iterator[Place]:
    """Find numbers and dates, each with its kind: those of one kind can take each other's place."""
    for found in NUMERAL.finditer(text):
        before, after = text[found.start() - 1 : found.start()], text[found.end() : found.end() + 1]
        if not (before.isalnum() or after.isalnum() or (before and before in ".,/:-_") or (after and after in "/:-_")):
            yield Place(found.start(), found.end(), found.group(), _kind_of_numeral(found.group(), before, after))
    for found in WORD.finditer(text):
        word = found.group()
        kind = WORD_KINDS.get(word.lower())
        if kind and (word not in ("may", "march")):
            yield Place(found.start(), found.end(), word, kind)


def _kind_of_numeral(written: str, before: str, after: str) -> str:
    if YEAR.fullmatch(written) and before not in ("$", "€", "£") and after != "%":
        return "year"
    digits = sum(letter.isdigit() for letter in written)
    ending = written.lstrip("0123456789,.")
    return f"{digits} digits{'.' in written}{',' in written}{'th' if len(ending) == 2 else ending}"


def _runs(text: str, sentence_starts: set[int]) -> Iterator[tuple[int, str]]:
    for found in NAME.finditer(text):
        start, name = found.start(), found.group()
        first, _, rest = name.partition(" ")
        at_start = any(start - back in sentence_starts for back in range(3))  # a quote or bracket may come first
        if at_start and first.lower() not in TITLES and _is_plain(first):
            if not rest or not rest[0].isupper():
                continue
            start, name = start + len(first) + 1, rest
        if len(name.split()) <= LONGEST_NAME and len(name) > 1 and not _is_plain(name):
            yield start, name


def _is_plain(word: str) -> bool:
    """Return whether a capitalised word is no name in itself: a function word, a month, a number in words."""
    lower = word.lower()
    return lower in FUNCTION_WORDS or lower in MONTHS or lower in WEEKDAYS or lower in ORDINALS or lower in CARDINALS


class Lexicon:
    """The names of a file, by lower-cased text, and of which kind each is; the order of contexts changes nothing."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._common: set[str] = set()  # words that are also written without a capital
        self._uses: dict[str, Counter[str]] = defaultdict(Counter)
        self._spellings: dict[str, Counter[str]] = defaultdict(Counter)
        cased = [passage for passage in passages if passage.is_cased]
        for passage in cased:
            self._common.update(word for word in WORD.findall(passage.text) if word.islower())
        for passage in cased:
            self._count(passage)
        self._least = attested(len(cased))
        self._kinds = self._find_kinds()
        self._names: dict[str, list[str]] = {}

    def _count(self, passage: Passage) -> None:
        text = passage.text
        starts = {sentence.start for sentence in passage.sentences}
        for start, name in passage.found_names:
            if start in starts and (" " not in name or name.split()[0].lower() in self._common):
                continue  # a sentence begins with a capital, whatever its first word
            before = text[max(0, start - 12) : start].lower().split()[-1:]
            after = text[start + len(name) : start + len(name) + 16].lower().replace(",", " ").split()[:1]
            uses = self._uses[name.lower()]
            uses["all"] += 1
            uses["the"] += before in (["the"], ["a"], ["an"])
            uses["place"] += not BEFORE_PLACE.isdisjoint(before)
            uses["person"] += not AFTER_PERSON.isdisjoint(after)
            uses["modifier"] += text[start + len(name) : start + len(name) + 1] == " " and _is_noun(after)
            self._spellings[name.lower()][name] += 1

    def _find_kinds(self) -> dict[str, str]:
        """Part the names by what they are made of and how they are used; those that neither tells have no kind."""
        people: Counter[str] = Counter()  # by first name
        for name, uses in self._uses.items():
            if " " in name:
                people[name.split()[0]] += 3 * uses["person"] - uses["the"] - uses["place"]
        kinds = {name: _kind_of(name, uses, people, self._least) for name, uses in self._uses.items()}
        for name in kinds.keys() & self._common:  # a word that may stand capitalised in a heading
            kinds[name] = kinds[name] if kinds[name] == "demonym" else UNKNOWN
        surnames = {name.split()[-1] for name, kind in kinds.items() if kind == "person"}
        for name in surnames & kinds.keys():
            if kinds[name].startswith((UNKNOWN, LOOSE)) and not self._uses[name]["place"]:
                kinds[name] = "surname"
        return kinds

    def kind(self, name: str) -> str:
        """Return a name's kind."""
        return self._kinds.get(name.lower(), UNKNOWN)

    def is_word(self, name: str) -> bool:
        """Return whether a name is also a plain word somewhere, as Apple is."""
        return name.lower() in self._common

    def names_of(self, passage: Passage) -> list[str]:
        """Return a context's names of known kinds, each once, sorted."""
        if passage.text not in self._names:
            found = {name for _, name in passage.found_names if self.kind(name) != UNKNOWN}
            self._names[passage.text] = sorted(found)
        return self._names[passage.text]

    @cached_property
    def names_by_kind(self) -> dict[str, list[str]]:
        """Return the names of each kind that are used several times, sorted, as they are written most often."""
        found: dict[str, list[str]] = defaultdict(list)
        for name in sorted(self._kinds):
            if self._uses[name]["all"] >= self._least and self._kinds[name] != UNKNOWN:
                spellings = self._spellings[name]
                found[self._kinds[name]].append(min(spellings, key=lambda each: (-spellings[each], each)))
        return found

    def find(self, text: str, passage: Passage) -> Iterator[Place]:
        """Find names of known kinds in a question: by its capitals or, in lower case, by those that contexts have."""
        if any(letter.isupper() for letter in text[1:]):
            for start, name in _runs(text, {0}):
                if self.kind(name) != UNKNOWN and (start or not self.is_word(name)):
                    yield Place(start, start + len(name), name, self.kind(name))
        else:
            here = {name.lower() for name in self.names_of(passage)} if passage.is_cased else self._kinds.keys()
            yield from self._find_lower(text, here)

    def _find_lower(self, text: str, names: Container[str]) -> Iterator[Place]:
        """Find the longest names first; a single word that is also a plain one is none."""
        words = list(WORD.finditer(text))
        place = 0
        while place < len(words):
            for size in range(min(LONGEST_NAME, len(words) - place), 0, -1):
                start = words[place].start()
                name = _bare(text[start : words[place + size - 1].end()].lower())
                is_plain = size == 1 and (self.is_word(name) or len(name) < 3)
                if name in names and self.kind(name) != UNKNOWN and not is_plain:
                    yield Place(start, start + len(name), text[start : start + len(name)], self.kind(name))
                    place += size - 1
                    break
            place += 1


def _is_noun(after: list[str]) -> bool:
    """Guess whether a name stands before a noun that it modifies, by the noun's ending."""
    return any(word.isalpha() and word not in FUNCTION_WORDS and not word.endswith(("ed", "ing")) for word in after)


def _kind_of(name: str, uses: Counter[str], people: Mapping[str, int], least: int) -> str:
    words = name.replace(".", "").split()
    if "-" in name or not words or all(word in TITLES for word in words):
        return UNKNOWN
    if words[0] in ("a", "an", "the") or len(words[-1]) == 1:  # a work's title, or a name cut off at an initial
        return UNKNOWN
    if words[0] in TITLES:
        return "person with title"
    if name in DEMONYMS:
        return "demonym"
    for word in (words[-1], words[0] if "of" in words else words[-1]):
        if word in KINDS_BY_WORD and len(words) > 1:
            return KINDS_BY_WORD[word]
    if 2 * uses["place"] > uses["all"] and uses["place"] >= least:
        return "place"
    if len(words) in (2, 3) and people.get(words[0], 0) > 0 and uses["the"] == 0:
        return "person"
    return UNKNOWN if uses["all"] < least or len(name) < 3 else f"{LOOSE}{_use_of(words, uses)}"


def _use_of(words: list[str], uses: Counter[str]) -> str:
    """Return how a name stands in sentences, which is all that is known of its kind."""
    if 2 * uses["modifier"] > uses["all"]:
        return "modifier"
    article = "the " if 2 * uses["the"] > uses["all"] else ""
    return f"{article}{'one word' if len(words) == 1 else 'several words'}"


def _bare(word: str) -> str:
    """Leave out what is not the word: a genitive."""
    return word[:-2] if word.endswith(("'s", "’s")) else word


RARE, AT_LEAST = 0.02, 10  # share of the contexts that a word is in at most if it leads to them, and how many at least
CLOSEST = 6  # contexts by rare words, of which all words are counted
COVERED = 0.6  # least share of a question's words in a context, each weighed by its inverse document frequency


class ContextIndex:
    """Which contexts of a file hold which words; the order of the contexts changes nothing."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._passages = sorted(passages, key=lambda passage: passage.text)
        counts = Counter(stem for passage in self._passages for stem in passage.stems)
        self._most = log(1 + len(self._passages))
        self._weights = {stem: log(1 + len(self._passages) / count) for stem, count in counts.items()}
        most = max(AT_LEAST, RARE * len(self._passages))
        self._places: dict[str, list[int]] = defaultdict(list)
        for place, passage in enumerate(self._passages):
            for stem in passage.stems:
                if counts[stem] <= most:
                    self._places[stem].append(place)

    def related(self, text: str, own: Passage) -> Iterator[Passage]:
        """Return the other contexts that have most of a text's words, those with the most first."""
        topics = sorted(topic_words(text))
        whole = sum(map(self._weight, topics))
        scores: dict[int, float] = defaultdict(float)
        for stem in topics:
            for place in self._places.get(stem, ()):
                scores[place] += self._weights[stem]
        closest = sorted(scores, key=lambda place: (-scores[place], place))[:CLOSEST]
        covered = {place: self._covered(topics, self._passages[place]) / whole for place in closest}
        for place in sorted(covered, key=lambda place: (-covered[place], place)):
            if covered[place] >= COVERED and self._passages[place].text != own.text:
                yield self._passages[place]

    def _weight(self, stem: str) -> float:
        """Return a word's inverse document frequency; one that no context has weighs most."""
        return self._weights.get(stem, self._most)

    def _covered(self, topics: Sequence[str], passage: Passage) -> float:
        return sum(self._weight(stem) for stem in topics if stem in passage.stems)
