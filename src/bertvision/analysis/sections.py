"""A table under a title: what analyses are printed as, on a terminal and in Markdown alike."""

from typing import NamedTuple

Row = tuple[str, ...]


class Section(NamedTuple):
    """Cells as they are printed; the first column names the row, the others hold numbers."""

    title: str
    header: Row
    rows: tuple[Row, ...]
    note: str = ""


class Page(NamedTuple):
    """A whole analysis as it is printed."""

    head: tuple[str, ...]  # lines: how many questions, which folders
    sections: list[Section]
    items: list[str]  # texts of 80 columns below the tables


def number_cell(value: float | None, digits: int = 1, sign: str = "") -> str:
    """Write a number; what was never computed is an empty cell."""
    return "" if value is None else f"{value:{sign},.{digits}f}"


def short_name(name: str, letters: int) -> str:
    """Cut a name that would make a table too wide."""
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def p_cell(value: float) -> str:
    """Write a p-value."""
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.1e}"
