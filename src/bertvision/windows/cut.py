"""Rows, choices and tagged sentences -> windows: one text, two, a beginning with its continuations, or words."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from bertvision.data.example import ChoiceRow, Sentence, TextRow
from bertvision.data.rows import LabelColumn
from bertvision.errors import DataError
from bertvision.progress import SILENT, Progress
from bertvision.tables import counted
from bertvision.windows.tokens import (
    NO_OFFSETS,
    Int32s,
    Layout,
    Tokenizer,
    read_layout,
    read_single_layout,
    slices,
    token_ids,
)
from bertvision.windows.window import IGNORED, NO_WORD, Label, Window, WindowConfig, window_starts

UNKNOWN: dict[LabelColumn, Label] = {"class": 0, "labels": (), "number": 0.0}
Layouts = tuple[Layout, Layout]  # around one text, and around two


def cut_rows(
    rows: Sequence[TextRow],
    tokenizer: Tokenizer,
    max_length: int,
    holds: LabelColumn,
    progress: Progress = SILENT,
) -> list[Window]:
    """Turn every row into one window of at most `max_length` tokens; longer texts lose their end, the longer one first.

    A row without a label gets one that means nothing.
    """
    layouts = read_layouts(tokenizer)
    windows: list[Window] = []
    with progress.bar("tokenise", len(rows)) as bar:
        for part in slices(rows):
            found = iter(token_ids(tokenizer, [text for row in part for text in row.texts]))
            for row in part:
                texts = [next(found) for _ in row.texts]
                windows.append(_window(len(windows), row.id, texts, layouts, max_length, _label(row, holds)))
            bar.advance(len(part))
    return windows


def cut_texts(
    texts: Sequence[str], tokenizer: Tokenizer, config: WindowConfig, progress: Progress = SILENT
) -> list[Window]:
    """Cut every text into overlapping windows of at most `max_length` tokens, without labels."""
    layout = read_single_layout(tokenizer)
    capacity = config.max_length - layout.special
    windows: list[Window] = []
    number = 0
    with progress.bar("tokenise", len(texts)) as bar:
        for part in slices(texts):
            for ids in token_ids(tokenizer, part):
                if not len(ids):
                    raise DataError(f"text {number} (from 0 on) holds no token of this encoder; leave it out")
                for first in window_starts(len(ids), capacity, config):
                    row = np.concatenate([layout.before, ids[first : first + capacity], layout.after])
                    windows.append(Window(number, row, len(row), NO_OFFSETS, first=first))
                number += 1
            bar.advance(len(part))
    return windows


def read_layouts(tokenizer: Tokenizer) -> Layouts:
    """Learn an encoder's special tokens around one text and around two."""
    return read_single_layout(tokenizer), read_layout(tokenizer)


def describe_left_out(windows: Sequence[Window]) -> str | None:
    """Say how many rows were longer than a window and how much of them is not read; None where all are read whole."""
    cut = [window for window in windows if window.tokens_left_out]
    if not cut:
        return None
    num_cut, num_rows = (len({window.example for window in each}) for each in (cut, windows))
    left_out = sum(window.tokens_left_out for window in cut)
    share = left_out / (left_out + sum(map(len, cut)))
    return (
        f"{num_cut:,} of {counted(num_rows, 'row')} {'is' if num_cut == 1 else 'are'} longer than the {len(cut[0])} "
        f"tokens that are read, and {'loses its' if num_cut == 1 else 'lose their'} end: {counted(left_out, 'token')}, "
        f"{share:.0%} of {'it' if num_cut == 1 else 'them'}"
    )


def _window(number: int, row: str, texts: Sequence[Int32s], layouts: Layouts, max_length: int, label: Label) -> Window:
    ids, second_at = join_texts(row, texts, layouts, max_length)
    left_out = layouts[len(texts) - 1].special + sum(map(len, texts)) - len(ids)
    return Window(number, ids, second_at, NO_OFFSETS, label=label, tokens_left_out=left_out)


def join_texts(row: str, texts: Sequence[Int32s], layouts: Layouts, max_length: int) -> tuple[Int32s, int]:
    """Return the ids of one text or two with special tokens, and where the second text begins (or the row ends)."""
    if len(texts) not in (1, 2):
        raise DataError(f"row {row!r} has {len(texts)} texts; give one or two columns of text")
    if not sum(len(ids) for ids in texts):
        raise DataError(f"row {row!r}: its text holds no token of this encoder; drop the row or write something there")
    layout = layouts[len(texts) - 1]
    room = max_length - layout.special
    if len(texts) == 1:
        ids = np.concatenate([layout.before, texts[0][:room], layout.after])
        return ids, len(ids)
    lengths = longest_first(len(texts[0]), len(texts[1]), room)
    first, second = (ids[:length] for ids, length in zip(texts, lengths, strict=True))
    head = np.concatenate([layout.before, first, layout.between])
    return np.concatenate([head, second, layout.after]), len(head)


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Return the lengths that two texts are cut to: the longer one loses tokens until both are equal, then both do."""
    if first + second <= room:
        return first, second
    shorter = min(first, second, room // 2)
    longer = room - shorter  # of two equals the second, as in the tokenizers library
    return (longer, shorter) if first > second else (shorter, longer)


def _label(row: TextRow, holds: LabelColumn) -> Label:
    if row.label is None:
        return UNKNOWN[holds]
    return float(row.label) if holds == "number" and isinstance(row.label, int | float) else row.label


def cut_choices(
    rows: Sequence[ChoiceRow], tokenizer: Tokenizer, max_length: int, progress: Progress = SILENT
) -> list[Window]:
    """Turn every ending into one window, with the context before it; a row's windows are neighbours, in order.

    All are labelled with the right ending's number. Too long ones lose the end of the longer text first, as in the
    script that BERT's numbers on SWAG come from.
    """
    layouts, endings = read_layouts(tokenizer), num_endings(rows)
    windows: list[Window] = []
    with progress.bar("tokenise", len(rows)) as bar:
        for part in slices(rows):
            contexts = token_ids(tokenizer, [row.context for row in part])
            found = iter(token_ids(tokenizer, [ending for row in part for ending in row.endings]))
            for row, context in zip(part, contexts, strict=True):
                number = len(windows) // endings
                for _ in range(endings):
                    texts = [context, next(found)]
                    windows.append(_window(number, row.id, texts, layouts, max_length, row.label or 0))
            bar.advance(len(part))
    return windows


def num_endings(rows: Sequence[ChoiceRow]) -> int:
    """Count the endings of a row; refuse rows that differ in it."""
    expected = len(rows[0].endings) if rows else 0
    for row in rows:
        if len(row.endings) != expected or not row.endings:
            raise DataError(
                f"row {row.id!r} has {len(row.endings)} endings, row {rows[0].id!r} has {expected}; all rows of a task "
                "need the same number, at least one; drop the others"
            )
    return expected


class SentencePieces(NamedTuple):
    """A sentence in word pieces."""

    ids: Int32s
    first_of: Int32s  # [word] its first piece


def cut_words(
    sentences: Sequence[Sentence],
    tags: Sequence[str],
    tokenizer: Tokenizer,
    config: WindowConfig,
    *,
    labelled: bool = True,
    progress: Progress = SILENT,
) -> list[Window]:
    """Cut sentences into windows of at most `max_length` tokens, in which a word's first piece has its tag's number.

    A word of a sentence with several windows is labelled, and its tag read, in one of them: where it stands farthest
    from both ends. With `config.document_context` the neighbouring sentences fill a window up; they are read elsewhere.
    """
    layout, numbers = read_single_layout(tokenizer), {tag: number for number, tag in enumerate(tags)}
    capacity = config.max_length - layout.special
    pieces = _pieces_of(sentences, tokenizer, progress)
    windows: list[Window] = []
    first = 0
    for _, neighbours in groupby(sentences, key=lambda sentence: sentence.document):
        document = list(neighbours)
        cuts = _Document(pieces[first : first + len(document)])
        for place, sentence in enumerate(document):
            found = _tags_of(sentence, numbers) if labelled else None
            for start, ids, words in cuts.windows(place, capacity, config):
                windows.append(_sentence_window(first + place, start, ids, words, found, layout))
        first += len(document)
    return windows


class _Document:
    """Sentences that follow each other, as one run of pieces."""

    def __init__(self, sentences: Sequence[SentencePieces]) -> None:
        self._sentences = sentences
        self._ids = np.concatenate([each.ids for each in sentences])
        self._at = np.cumsum([0, *(len(each.ids) for each in sentences)])

    def windows(self, place: int, capacity: int, config: WindowConfig) -> list[tuple[int, Int32s, Int32s]]:
        """Each window's first piece of the sentence, its ids, and for each of them the word that is read there."""
        own, at = self._sentences[place], int(self._at[place])
        length = len(own.ids)
        if length > capacity:
            bounds = [(first, min(first + capacity, length)) for first in window_starts(length, capacity, config)]
        else:
            before, after = self._room_around(place, capacity - length) if config.document_context else (0, 0)
            bounds = [(-before, length + after)]
        chosen = window_of_each(own.first_of, bounds)
        cut = []
        for number, (first, stop) in enumerate(bounds):
            words = np.full(stop - first, NO_WORD, dtype=np.int32)
            read = np.flatnonzero(chosen == number)
            words[own.first_of[read] - first] = read
            cut.append((max(first, 0), self._ids[at + first : at + stop], words))
        return cut

    def _room_around(self, place: int, room: int) -> tuple[int, int]:
        """Share free room between what stands before and after a sentence; what one side cannot use is the other's."""
        there, behind = int(self._at[place]), int(self._at[-1] - self._at[place + 1])
        after = min(behind, room - min(there, room // 2))
        return min(there, room - after), after


def window_of_each(places: Int32s, bounds: Sequence[tuple[int, int]]) -> Int32s:
    """Return for each place in which window [first, stop) it is farthest from both ends; of equals, in the first."""
    context = [np.minimum(places - first, stop - 1 - places) for first, stop in bounds]
    farthest: Int32s = np.argmax(context, axis=0).astype(np.int32)
    return farthest


def _sentence_window(
    example: int, first: int, ids: Int32s, words: Int32s, tags: Int32s | None, layout: Layout
) -> Window:
    before, after = (np.full(len(part), NO_WORD, dtype=np.int32) for part in (layout.before, layout.after))
    words = np.concatenate([before, words, after])
    label = np.full(len(words), IGNORED, dtype=np.int32)
    if tags is not None:
        label[words != NO_WORD] = tags[words[words != NO_WORD]]
    row = np.concatenate([layout.before, ids, layout.after])
    return Window(example, row, len(row), NO_OFFSETS, label=label, words=words, first=first)


def _tags_of(sentence: Sentence, numbers: Mapping[str, int]) -> Int32s | None:
    if sentence.tags is None:
        return None
    if len(sentence.tags) != len(sentence.words):
        raise DataError(f"sentence {sentence.id!r} has {len(sentence.words)} words and {len(sentence.tags)} tags")
    if unknown := [tag for tag in sentence.tags if tag not in numbers]:
        raise DataError(
            f"sentence {sentence.id!r}: the tag {unknown[0]!r} is not one of this task's ({', '.join(numbers)}); "
            "fix it or train on data that have it"
        )
    return np.array([numbers[tag] for tag in sentence.tags], dtype=np.int32)


def _pieces_of(sentences: Sequence[Sentence], tokenizer: Tokenizer, progress: Progress) -> list[SentencePieces]:
    """Tokenise every different word once, with a blank before it, as inside a text (byte-level pieces hold it)."""
    words = list(dict.fromkeys(word for sentence in sentences for word in sentence.words))
    ids_of: dict[str, Int32s] = {}
    with progress.bar("tokenise", len(words)) as bar:
        for part in slices(words):
            ids_of.update(zip(part, token_ids(tokenizer, [f" {word}" for word in part]), strict=True))
            bar.advance(len(part))
    # Tokenizers have this one by __getattr__, which a protocol's check on Python 3.12 does not see.
    unk_id = getattr(tokenizer, "unk_token_id", None)
    unknown = [] if unk_id is None else [unk_id]
    return [_join(sentence, ids_of, np.array(unknown, dtype=np.int32)) for sentence in sentences]


def _join(sentence: Sentence, ids_of: Mapping[str, Int32s], unknown: Int32s) -> SentencePieces:
    """Lay a sentence's words side by side; a word that leaves no piece, such as a control character, is unknown."""
    if not sentence.words:
        raise DataError(f"sentence {sentence.id!r} has no words; drop it")
    parts = [ids_of[word] if len(ids_of[word]) else unknown for word in sentence.words]
    if empty := [word for word, part in zip(sentence.words, parts, strict=True) if not len(part)]:
        raise DataError(f"sentence {sentence.id!r}: no token of this encoder holds its word {empty[0]!r}; drop it")
    ends = np.cumsum([len(part) for part in parts])
    first_of = np.concatenate([[0], ends[:-1]]).astype(np.int32)
    return SentencePieces(np.concatenate(parts), first_of)
