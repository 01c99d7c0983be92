"""CoNLL files (a word and its tag on a line, a blank line after a sentence) -> sentences with tags in IOB2."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bertvision.data.example import OnBad, Sentence, Split, Tagging
from bertvision.data.sources import (
    CAN_DROP,
    BadExampleError,
    Found,
    collect,
    is_unicode,
    parse_source,
    read_bytes,
    take_part,
)
from bertvision.data.text_format import SAY_ENCODING, decode_text
from bertvision.files import sha256_of

DOCUMENT = "-DOCSTART-"
TAG = re.compile(r"O|[BIES]-\S+")
PREFIXES = {"auto": "BIES", "iob1": "BI", "iob2": "BI", "bioes": "BIES"}
FIRST_OF_ENTITY = {"iob1": "BI", "iob2": "B", "bioes": "BS"}
# Words and marks apart, nearly as CoNLL's files have them; U.S. and hyphens stay whole there, so that one who has a
# better way to cut gives words.
WORD = re.compile(r"\w+(?:[-'’.]\w+)*|[^\w\s]")
EXPECTED = "a CoNLL file: word first and tag last on a line, a blank line after each sentence"


class _Word(NamedTuple):
    line: int
    fields: list[str]


def read_ner(
    source: str,
    *,
    tagging: Tagging = "auto",
    labels: Sequence[str] = (),
    on_bad: OnBad = "fail",
    needs_labels: bool = True,
    advice: str = CAN_DROP,
    encoding: str | None = None,
) -> Split[Sentence]:
    """Read tagged sentences; without `needs_labels`, lines of one column are words without tags.

    Tags that `labels` lacks are refused, if it holds any.
    """
    path = Path(parse_source(source).whole)
    text = decode_text(path, read_bytes(path, EXPECTED), encoding)
    found = _find_sentences(path, text, tagging, frozenset(labels), needs_labels)
    return take_part(collect(found, str(path), on_bad, sha256_of(path), what="sentence", advice=advice), source)


def tag_names(split: Split[Sentence]) -> tuple[str, ...]:
    """Return O, and B and I of every type of entity in a split, sorted by type."""
    types = sorted({tag[2:] for sentence in split.examples for tag in sentence.tags or () if tag != "O"})
    return ("O", *(f"{prefix}-{each}" for each in types for prefix in "BI"))


def word_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Return where the words of a text begin and end."""
    return tuple(match.span() for match in WORD.finditer(text))


def to_iob2(tags: Sequence[str]) -> tuple[str, ...]:
    """Write tags in IOB1, IOB2 or BIOES as IOB2: B where an entity begins, I inside it.

    An I or E that continues nothing begins an entity, as in IOB1 and for conlleval.
    """
    written = []
    before = "O"
    for tag in tags:
        goes_on = tag[0] in "IE" and before[0] in "BI" and before[2:] == tag[2:]
        written.append("O" if tag == "O" else f"{'I' if goes_on else 'B'}-{tag[2:]}")
        before = tag
    return tuple(written)


def _find_sentences(
    path: Path, text: str, tagging: Tagging, labels: frozenset[str], needs_labels: bool
) -> Iterator[Found[Sentence]]:
    for place, (document, words) in enumerate(_cut(text)):
        try:
            sentence = _sentence(str(place), document, words, tagging, labels, needs_labels)
            yield Found(f"{path}: line {words[0].line}", sentence)
        except _BadLineError as problem:
            yield Found(f"{path}: line {problem.line}", None, str(problem))


class _BadLineError(BadExampleError):
    """What is wrong with a line, and which it is."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def _cut(text: str) -> Iterator[tuple[int, list[_Word]]]:
    """Return every sentence's words and the document that it is in."""
    document, words = 0, list[_Word]()
    seen = False  # a sentence of this document
    for number, line in enumerate(text.split("\n"), start=1):
        fields = [field for field in (line.split("\t") if "\t" in line else line.split()) if field.strip()]
        if fields and fields[0] != DOCUMENT:
            words.append(_Word(number, [field.strip() for field in fields]))
            continue
        if words:
            yield document, words
            words, seen = [], True
        if fields and seen:
            document, seen = document + 1, False
    if words:
        yield document, words


def _sentence(
    identity: str, document: int, words: list[_Word], tagging: Tagging, labels: frozenset[str], needs_labels: bool
) -> Sentence:
    texts = tuple(word.fields[0] for word in words)
    for word in words:
        if not is_unicode(" ".join(word.fields)):
            raise _BadLineError(word.line, f"not UTF-8 text; {SAY_ENCODING}")
    if not needs_labels and all(len(word.fields) == 1 for word in words):
        return Sentence(identity, texts, None, document)
    _check_tags(words, tagging)
    tags = to_iob2([word.fields[-1] for word in words])
    for word, tag in zip(words, tags, strict=True):
        if labels and tag not in labels:
            raise _BadLineError(word.line, f"tag {tag!r} is unknown; known: {', '.join(sorted(labels))}")
    return Sentence(identity, texts, tags, document)


def _check_tags(words: list[_Word], tagging: Tagging) -> None:
    before = "O"
    for word in words:
        tag = word.fields[-1]
        if len(word.fields) < 2:
            raise _BadLineError(word.line, f"only {word.fields[0]!r} on it; give a word and its tag")
        if not TAG.fullmatch(tag) or tag[0] not in "O" + PREFIXES[tagging]:
            raise _BadLineError(word.line, f"{tag!r} is no tag of {_called(tagging)}; give O or such as B-PER")
        if tagging != "auto" and tag != "O" and not _can_follow(before, tag, tagging):
            raise _BadLineError(word.line, f"{tag!r} after {before!r} is not {_called(tagging)}; fix it")
        before = tag


def _can_follow(before: str, tag: str, tagging: Tagging) -> bool:
    is_inside = before[0] in "BI" and before[2:] == tag[2:]
    if tagging == "iob1" and tag[0] == "B":  # only there to part two neighbours of one type
        return is_inside
    return is_inside or tag[0] in FIRST_OF_ENTITY[tagging]


def _called(tagging: Tagging) -> str:
    return "IOB or BIOES" if tagging == "auto" else tagging.upper()
