"""Rows -> a table of strings, and its Markdown and HTML."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Literal, NamedTuple

from bertvision.records import RunRecord, fraction_name
from bertvision.report.rows import Row, Statistic, table_rows

Alignment = Literal["left", "right"]
ROW_HEADS = ("model", "split")  # columns whose cells name their row


@dataclass(frozen=True)
class Table:
    """Cells as they are printed; `rows` are as wide as `header` and `alignments`."""

    header: tuple[str, ...]
    alignments: tuple[Alignment, ...]
    rows: tuple[tuple[str, ...], ...]


class Column(NamedTuple):
    """A column's head, its cells, and which tables have it."""

    head: str
    alignment: Alignment
    cell: Callable[[Row], str]
    is_shown: Callable[[Sequence[Row]], bool] = lambda rows: True


def results_table(records: Iterable[RunRecord]) -> Table:
    """Lay out records as a table with a row per model and fraction; one experiment's records at a time read best."""
    rows = table_rows(records)
    columns = [column for column in COLUMNS if column.is_shown(rows)]
    return Table(
        header=tuple(column.head for column in columns),
        alignments=tuple(column.alignment for column in columns),
        rows=tuple(tuple(column.cell(row) for column in columns) for row in rows),
    )


def models_table(records: Iterable[RunRecord]) -> Table | None:
    """Lay out one row per model and the fractions side by side, as the papers do; None where there is one fraction."""
    rows = table_rows(records)
    fractions = list(dict.fromkeys(row.fraction for row in rows))
    if len(fractions) < 2:
        return None
    models: dict[str, dict[float | None, Row]] = {}
    for row in rows:
        models.setdefault(row.name, {})[row.fraction] = row
    heads = [f"{fraction_name(fraction)}: {what}" for fraction in fractions for what in ("EM / F1", "best EM / F1")]
    number: Alignment = "right"
    return Table(
        header=("model", "parameters", "% of encoder", *heads),
        alignments=("left", *[number] * (2 + len(heads))),
        rows=tuple(_model_cells(by_fraction, fractions) for by_fraction in models.values()),
    )


def to_markdown(table: Table) -> str:
    """Write a table as Markdown, with columns as wide as their widest cell."""
    lines = [[_unbroken(markdown_text(cell)) for cell in line] for line in (table.header, *table.rows)]
    widths = [max(3, *(len(line[column]) for line in lines)) for column in range(len(table.header))]
    rules = [_markdown_rule(alignment, width) for alignment, width in zip(table.alignments, widths, strict=True)]
    head, *body = [_padded(line, table.alignments, widths) for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, rules, *body])


def to_html(table: Table, caption: str = "") -> str:
    """Write a table as HTML, everything escaped, with a body for each run of equal first cells (the fractions)."""
    bodies = (list(group) for _, group in groupby(table.rows, key=lambda cells: cells[0]))
    parts = [
        "<table>",
        *([f"<caption>{escape(caption)}</caption>"] if caption else []),
        f"<thead>{_html_line(table, table.header, is_head=True)}</thead>",
        *(_html_body(table, body) for body in bodies),
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


def _model_cells(by_fraction: Mapping[float | None, Row], fractions: Sequence[float | None]) -> tuple[str, ...]:
    first = next(iter(by_fraction.values()))
    cells = [first.name, f"{first.parameters:,}", share_text(first.share)]
    for fraction in fractions:
        row = by_fraction.get(fraction)
        pairs = ((row.exact, row.f1), (row.best_exact, row.best_f1)) if row is not None else ((None, None),) * 2
        cells += [" / ".join(map(_score_text, pair)) if all(pair) else "" for pair in pairs]
    return tuple(cells)


def _score_text(score: Statistic | None) -> str:
    if score is None:
        return ""
    return f"{score.mean:.1f}" if score.deviation is None else f"{score.mean:.1f} ± {score.deviation:.1f}"


def _seconds_text(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.1f}"


COLUMNS = (
    Column("experiment", "left", lambda row: row.experiment, lambda rows: len({row.experiment for row in rows}) > 1),
    Column("fraction", "left", lambda row: fraction_name(row.fraction)),
    Column("model", "left", lambda row: row.name),
    Column("kind", "left", lambda row: row.kind),
    Column("seeds", "right", lambda row: str(row.seeds), lambda rows: len({row.seeds for row in rows}) > 1),
    Column("parameters", "right", lambda row: f"{row.parameters:,}"),
    Column("% of encoder", "right", lambda row: share_text(row.share)),
    Column("EM", "right", lambda row: _score_text(row.exact)),
    Column("F1", "right", lambda row: _score_text(row.f1)),
    Column("best F1", "right", lambda row: _score_text(row.best_f1), lambda rows: any(row.best_f1 for row in rows)),
    Column("span F1", "right", lambda row: _score_text(row.span_f1)),
    Column("seconds", "right", lambda row: _seconds_text(row.seconds)),
)


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
