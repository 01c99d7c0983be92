"""`Table`: what every report, analysis and list of this project is laid out as; `report/renderers.py` writes it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Literal, NamedTuple

Alignment = Literal["left", "right"]


@dataclass(frozen=True)
class Number:
    """A number and how it is written, with its standard deviation where it is a mean of several."""

    value: float
    format: str = ".1f"
    deviation: float | None = None

    def __str__(self) -> str:
        """Return it as it is printed, such as `76.3 ± 0.4`."""
        if self.deviation is None:
            return self.alone
        return f"{self.alone} ± {self.deviation:{self.format.removeprefix('+')}}"

    @property
    def alone(self) -> str:
        """Return it without its deviation."""
        return f"{self.value:{self.format}}"


Cell = str | Number
Cells = tuple[Cell, ...]


class Column(NamedTuple):
    """A column's head, on which side its cells stand, and what it means."""

    head: str
    alignment: Alignment = "right"
    meaning: str = ""


@dataclass(frozen=True)
class Table:
    """A title, columns, rows of cells, and a note to stand below them.

    A plain head is a column of names where it is the first, and one of numbers elsewhere. Rows are as wide as there
    are columns; a row of a single cell is the heading of those below it.
    """

    title: str
    columns: tuple[Column | str, ...]
    rows: tuple[Cells, ...]
    note: str = ""

    @property
    def full_columns(self) -> tuple[Column, ...]:
        """Return the columns with their alignments."""
        return tuple(
            Column(column, "right" if place else "left") if isinstance(column, str) else column
            for place, column in enumerate(self.columns)
        )

    @property
    def header(self) -> tuple[str, ...]:
        """Return the heads of the columns."""
        return tuple(column.head for column in self.full_columns)

    @property
    def alignments(self) -> tuple[Alignment, ...]:
        """Return the side on which each column's cells stand."""
        return tuple(column.alignment for column in self.full_columns)

    @property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """Return the cells as they are printed."""
        return tuple(tuple(map(str, row)) for row in self.rows)


def without_empty_columns(table: Table) -> Table:
    """Leave out columns that have no cell with anything in it."""
    rows = [row for row in table.rows if len(row) == len(table.columns)]
    kept = [place for place in range(len(table.columns)) if any(str(row[place]) for row in rows)]
    if not rows or len(kept) == len(table.columns):
        return table
    columns = tuple(table.full_columns[place] for place in kept)
    chosen = (row if len(row) < len(table.columns) else tuple(row[place] for place in kept) for row in table.rows)
    return replace(table, columns=columns, rows=tuple(chosen))


class Page(NamedTuple):
    """A whole analysis as it is printed."""

    head: tuple[str, ...]  # lines: how many questions, which folders
    tables: list[Table]
    items: list[str]  # texts of 80 columns below the tables


class Statistic(NamedTuple):
    """A mean over seeds, and their standard deviation (of a sample: n - 1) where there are several."""

    mean: float
    deviation: float | None


def statistic(values: Sequence[float]) -> Statistic | None:
    """Return the mean and deviation of one value per seed; None of nothing."""
    if not values:
        return None
    return Statistic(fmean(values), stdev(values) if len(values) > 1 else None)


def score_cell(score: Statistic | None, digits: int | None = 1, sign: str = "") -> Cell:
    """Return a mean with its deviation, without `digits` as `figure` writes it; nothing for a score never made."""
    if score is None:
        return ""
    how = figure_format(score.mean) if digits is None else f".{digits}f"
    return Number(score.mean, f"{sign}{how}", score.deviation)


def figure(value: float, sign: str = "") -> str:
    """Write a number of any size, such as an error in the labels' unit: by four digits, a large one in full."""
    return f"{value:{sign}{figure_format(value)}}"


def figure_format(value: float) -> str:
    """Return the format of such a number."""
    return ",.0f" if abs(value) >= 9_999.5 else ",.4g"  # which writes 9,999.5 as 1e+04


def share_text(share: float) -> str:
    """Write a percentage that may be tiny: two significant digits below 1, and never a power of ten."""
    if share >= 1 or share == 0:
        return f"{share:.1f}"
    return f"{share:.{1 - math.floor(math.log10(share))}f}"


def number_cell(value: float | None, digits: int = 1, sign: str = "") -> str:
    """Write a number; what was never computed is an empty cell."""
    return "" if value is None else f"{value:{sign},.{digits}f}"


def counted(number: int, noun: str) -> str:
    """Write a number of things."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def short_name(name: str, letters: int) -> str:
    """Cut a name that would make a table too wide."""
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def p_cell(value: float) -> str:
    """Write a p-value."""
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.1e}"


def in_units(num_bytes: float) -> str:
    """Write a number of bytes for a person."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:,.1f} TB"


def in_time(seconds: float) -> str:
    """Write a duration for a person."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
