"""One text or two, or a beginning and its continuations -> rows for the encoder."""

from collections.abc import Sequence

import numpy as np

from bertvision.data.example import ChoiceRow, TextRow
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
from bertvision.windows.window import Label, Window, WindowConfig, window_starts

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
