"""Tables -> LaTeX in the style of booktabs, to be pasted or read with `\\input`."""

import re
from collections.abc import Iterable, Sequence

from bertvision.report.renderers import Table, bodies

HEAD = r"""% Tables of a bertvision report. In the preamble: \usepackage{booktabs,graphicx}
"""
ESCAPES = {
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
MARKS = re.compile("|".join(map(re.escape, ESCAPES)))
# A table that is too wide is made as wide as the text; a narrow one stays as it is.
FIT = r"\resizebox{\ifdim\width>\linewidth \linewidth\else \width\fi}{!}{%"


def to_latex_file(tables: Iterable[tuple[str, Table]]) -> str:
    """Write tables under their captions as one file."""
    return "\n".join([HEAD, *(to_latex(table, caption) for caption, table in tables)])


def to_latex(table: Table, caption: str) -> str:
    """Write a table as a float, everything escaped, with a rule between fractions."""
    lines = [line for body in bodies(table) for line in (r"\midrule", *map(_line, body))]
    columns = "".join(alignment[0] for alignment in table.alignments)
    parts = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_text(caption)}}}",
        FIT,
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _line(table.header),
        *lines,
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table}",
    ]
    return "\n".join(parts) + "\n"


def latex_text(text: str) -> str:
    """Write text so that LaTeX shows it as it is, on one line."""
    return MARKS.sub(lambda found: ESCAPES[found[0]], " ".join(text.split()))


def _line(cells: Sequence[str]) -> str:
    # An empty group first: a row that begins with a bracket would be read as the argument of the row before it.
    return f"{{}}{' & '.join(map(latex_text, cells))} \\\\"
