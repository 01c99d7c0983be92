"""Words with tags -> word pieces, keeping which piece starts which word."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from bertvision.data.example import Sentence
from bertvision.errors import DataError
from bertvision.progress import SILENT, Progress
from bertvision.windows.tokens import NO_OFFSETS, Int32s, Layout, Tokenizer, read_single_layout, slices, token_ids
from bertvision.windows.window import IGNORED, NO_WORD, Window, WindowConfig, window_starts


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
                windows.append(_window(first + place, start, ids, words, found, layout))
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


def _window(example: int, first: int, ids: Int32s, words: Int32s, tags: Int32s | None, layout: Layout) -> Window:
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
