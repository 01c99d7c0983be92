"""A beginning and its continuations -> one row for the encoder for each of them."""

from collections.abc import Sequence

from bertvision.data.example import ChoiceRow
from bertvision.errors import DataError
from bertvision.progress import SILENT, Progress
from bertvision.windows.sentences import join_texts, read_layouts
from bertvision.windows.tokens import NO_OFFSETS, Tokenizer, slices, tokenise
from bertvision.windows.window import Window


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
            contexts = [ids for ids, _ in tokenise(tokenizer, [row.context for row in part])]
            found = iter(tokenise(tokenizer, [ending for row in part for ending in row.endings]))
            for row, context in zip(part, contexts, strict=True):
                number = len(windows) // endings
                for _ in range(endings):
                    ids, second_at = join_texts(row.id, [context, next(found)[0]], layouts, max_length)
                    windows.append(Window(number, ids, second_at, NO_OFFSETS, label=row.label or 0))
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
