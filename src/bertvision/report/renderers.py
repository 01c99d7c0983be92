"""A table of strings, and its Markdown and HTML."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Literal, NamedTuple

from bertvision.report.results import Statistic

Alignment = Literal["left", "right"]
ROW_HEADS = ("model", "split")  # columns whose cells name their row


@dataclass(frozen=True)
class Table:
    """Cells as they are printed; `rows` are as wide as `header` and `alignments`."""

    header: tuple[str, ...]
    alignments: tuple[Alignment, ...]
    rows: tuple[tuple[str, ...], ...]


class Captioned(NamedTuple):
    """A table with its caption, and a sentence to stand under it where it needs one."""

    caption: str
    table: Table
    note: str = ""


def bodies(table: Table) -> list[list[tuple[str, ...]]]:
    """Split the rows into runs of equal first cells (the fractions), unless every row has its own."""
    found = [list(group) for _, group in groupby(table.rows, key=lambda cells: cells[0])]
    return found if len(found) < len(table.rows) else [list(table.rows)]


def to_markdown(table: Table) -> str:
    """Write a table as Markdown, with columns as wide as their widest cell."""
    lines = [[_unbroken(markdown_text(cell)) for cell in line] for line in (table.header, *table.rows)]
    widths = [max(3, *(len(line[column]) for line in lines)) for column in range(len(table.header))]
    rules = [_markdown_rule(alignment, width) for alignment, width in zip(table.alignments, widths, strict=True)]
    head, *body = [_padded(line, table.alignments, widths) for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, rules, *body])


def to_html(table: Table, caption: str = "") -> str:
    """Write a table as HTML, everything escaped."""
    parts = [
        "<table>",
        *([f"<caption>{escape(caption)}</caption>"] if caption else []),
        f"<thead>{_html_line(table, table.header, is_head=True)}</thead>",
        *(_html_body(table, body) for body in bodies(table)),
        "</table>",
    ]
    return "\n".join(parts) + "\n"


def share_text(share: float) -> str:
    """Write a percentage that may be tiny: two significant digits below 1, and never a power of ten."""
    if share >= 1 or share == 0:
        return f"{share:.1f}"
    return f"{share:.{1 - math.floor(math.log10(share))}f}"


def markdown_text(text: str) -> str:
    """Write text so that Markdown shows it as it is, on one line."""
    marked = re.sub(r"([\\`*|\[\]]|\b_|_\b)", r"\\\1", escape(text, quote=False))
    return " ".join(marked.split())


def score_text(score: Statistic | None, digits: int = 1) -> str:
    """Write a mean, with its deviation where there is one; nothing for a score that was never made."""
    if score is None:
        return ""
    mean, deviation = score
    return f"{mean:.{digits}f}" if deviation is None else f"{mean:.{digits}f} ± {deviation:.{digits}f}"


def signed_text(score: Statistic | None, digits: int = 1) -> str:
    """Write a difference with its sign, and its deviation where there is one."""
    return "" if score is None else ("+" if score.mean >= 0 else "") + score_text(score, digits)


def _unbroken(cell: str) -> str:
    return cell.replace(" ± ", "\u00a0±\u00a0")  # a mean and its deviation stay on one line


def _markdown_rule(alignment: Alignment, width: int) -> str:
    return "-" * width if alignment == "left" else "-" * (width - 1) + ":"


def _padded(line: Sequence[str], alignments: Sequence[Alignment], widths: Sequence[int]) -> list[str]:
    return [
        cell.ljust(width) if alignment == "left" else cell.rjust(width)
        for cell, alignment, width in zip(line, alignments, widths, strict=True)
    ]


def _html_body(table: Table, rows: Sequence[Sequence[str]]) -> str:
    lines = "\n".join(_html_line(table, row, is_head=False) for row in rows)
    return f"<tbody>\n{lines}\n</tbody>"


def _html_line(table: Table, cells: Sequence[str], *, is_head: bool) -> str:
    columns = zip(cells, table.header, table.alignments, strict=True)
    written = (_html_cell(cell, head, alignment, is_head=is_head) for cell, head, alignment in columns)
    return f"<tr>{''.join(written)}</tr>"


def _html_cell(text: str, head: str, alignment: Alignment, *, is_head: bool) -> str:
    classes = f"{alignment} name" if head in ROW_HEADS else alignment
    if is_head:
        return f'<th scope="col" class="{classes}">{escape(text)}</th>'
    if head in ROW_HEADS:
        return f'<th scope="row" class="{classes}">{_breakable(escape(text))}</th>'
    return f'<td class="{classes}">{escape(text)}</td>'


def _breakable(escaped: str) -> str:
    return re.sub(r"([_+])", r"\1<wbr>", escaped)
