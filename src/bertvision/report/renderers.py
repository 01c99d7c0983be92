"""A table -> text for the terminal, Markdown, HTML and LaTeX."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from bertvision.tables import Alignment, Cell, Number, Table

WIDTH = 80  # columns of a terminal
ROW_HEADS = ("model", "split")  # columns whose cells name their row
LATEX_HEAD = r"""% Tables of a bertvision report. In the preamble: \usepackage{booktabs,graphicx}
"""
LATEX_ESCAPES = {
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "“": "``",
    "”": "''",
}
LATEX_MARKS = re.compile("|".join(map(re.escape, LATEX_ESCAPES)))
# A table that is too wide is made as wide as the text; a narrow one stays as it is.
LATEX_FIT = r"\resizebox{\ifdim\width>\linewidth \linewidth\else \width\fi}{!}{%"


def to_terminal(table: Table) -> str:
    """Write a table for a terminal of 80 columns: means without deviations, and two blanks between columns."""
    lines = [table.header, *(tuple(map(_alone, row)) for row in table.rows)]
    widths = _widths([line for line in lines if len(line) == len(table.columns)])
    head, *body = ["  ".join(map(_aligned, line, table.alignments, widths)).rstrip() for line in lines]
    rule = "─" * (sum(widths) + 2 * len(widths) - 2)
    note = [textwrap.fill(table.note, WIDTH)] if table.note else []
    return "\n".join(["", *([table.title] if table.title else []), head, rule, *body, "", *note])


def to_markdown(table: Table) -> str:
    """Write a table as Markdown, with columns as wide as their widest cell; its title and note are the page's."""
    lines = [[_unbroken(markdown_text(cell)) for cell in line] for line in (table.header, *_whole_rows(table))]
    widths = [max(3, width) for width in _widths(lines)]
    rules = [_markdown_rule(alignment, width) for alignment, width in zip(table.alignments, widths, strict=True)]
    head, *body = [list(map(_aligned, line, table.alignments, widths)) for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, rules, *body])


def to_html(table: Table) -> str:
    """Write a table as HTML under its title, everything escaped."""
    parts = [
        "<table>",
        *([f"<caption>{escape(table.title)}</caption>"] if table.title else []),
        f"<thead>{_html_line(table, table.header, is_head=True)}</thead>",
        *(_html_body(table, body) for body in _bodies(table)),
        "</table>",
    ]
    return "\n".join(parts) + "\n"


def to_latex(table: Table) -> str:
    """Write a table as a float in the style of booktabs, everything escaped, with a rule between fractions."""
    lines = [line for body in _bodies(table) for line in (r"\midrule", *map(_latex_line, body))]
    caption = f"{table.title}{f'. {table.note}' if table.note else ''}"
    parts = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_text(caption)}}}",
        LATEX_FIT,
        rf"\begin{{tabular}}{{{''.join(alignment[0] for alignment in table.alignments)}}}",
        r"\toprule",
        _latex_line(table.header),
        *lines,
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table}",
    ]
    return "\n".join(parts) + "\n"


def to_latex_file(tables: Iterable[Table]) -> str:
    """Write tables as one file, to be read with `\\input` or to paste from."""
    return "\n".join([LATEX_HEAD, *map(to_latex, tables)])


def markdown_text(text: str) -> str:
    """Write text so that Markdown shows it as it is, on one line."""
    marked = re.sub(r"([\\`*|\[\]]|\b_|_\b)", r"\\\1", escape(text, quote=False))
    return " ".join(marked.split())


def latex_text(text: str) -> str:
    """Write text so that LaTeX shows it as it is, on one line."""
    return LATEX_MARKS.sub(lambda found: LATEX_ESCAPES[found[0]], " ".join(text.split()))


def _bodies(table: Table) -> list[list[tuple[str, ...]]]:
    """Split the rows into runs of equal first cells (the fractions), unless every row has its own."""
    rows = _whole_rows(table)
    found = [list(group) for _, group in groupby(rows, key=lambda cells: cells[0])]
    return found if len(found) < len(rows) else [rows]


def _whole_rows(table: Table) -> list[tuple[str, ...]]:
    """Return the cells as they are printed, headings as wide as other rows."""
    return [(*row, *[""] * (len(table.columns) - len(row))) for row in table.texts]


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def _aligned(cell: str, alignment: Alignment, width: int) -> str:
    return cell.ljust(width) if alignment == "left" else cell.rjust(width)


def _alone(cell: Cell) -> str:
    return cell.alone if isinstance(cell, Number) else cell


def _unbroken(cell: str) -> str:
    return cell.replace(" ± ", "\u00a0±\u00a0")  # a mean and its deviation stay on one line


def _markdown_rule(alignment: Alignment, width: int) -> str:
    return "-" * width if alignment == "left" else "-" * (width - 1) + ":"


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


def _latex_line(cells: Sequence[str]) -> str:
    # An empty group first: a row that begins with a bracket would be read as the argument of the row before it.
    return f"{{}}{' & '.join(map(latex_text, cells))} \\\\"
