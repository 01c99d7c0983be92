"""A matplotlib figure -> SVG that takes its colours from the page around it, and PNG; the same bytes each time."""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure

from bertvision.records import RunRecord

INK = "#010203"  # drawn with, then written as `currentColor`: no palette holds it, and it is not the unwritten default
DOTS_PER_INCH = 200  # of PNG files: sharp in print at the width of a column
FONTS = "system-ui, sans-serif"
LOOK: dict[Any, Any] = {
    "text.parse_math": False,  # a dollar sign in a head's name is a dollar sign
    "svg.fonttype": "none",  # text stays text: it can be searched, and the page's reader chooses the font
    "svg.hashsalt": "bertvision",
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 6,
    "figure.constrained_layout.h_pad": 0.08,  # inches
    "errorbar.capsize": 2.5,
}
# A file of its own has no page around it, so it says which ink to use on light and on dark.
FILE_STYLE = "<style>:root{color:#1f2328}@media(prefers-color-scheme:dark){:root{color:#d8dee4}}</style>"


Draw = Callable[[Sequence[RunRecord]], Figure | None]  # None where records are missing


class Drawing(NamedTuple):
    """A figure as it is written."""

    svg: str
    png: bytes


def draw(figure_of: Draw, records: Sequence[RunRecord]) -> Drawing | None:
    """Draw a figure of records; None where those that it needs are missing."""
    with house_look():
        figure = figure_of(records)
        return None if figure is None else Drawing(to_svg(figure), to_png(figure))


@contextmanager
def house_look() -> Iterator[None]:
    """Draw with this project's settings, whatever the user's own are, and put theirs back."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        # Only widths are measured with matplotlib's own font; the reader's fonts have the missing letters.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(LOOK)
        yield


def to_svg(figure: Figure) -> str:
    """Write a figure as an `<svg>` element without dates, versions, background or fixed text colour."""
    buffer = io.StringIO()
    unsaid = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=unsaid)
    text = buffer.getvalue()
    text = text[text.index("<svg ") :].replace(INK, "currentColor")
    return re.sub(r"font-family: [^;\"]*", f"font-family: {FONTS}", text)


def to_png(figure: Figure) -> bytes:
    """Write a figure as a picture on white, for where an SVG cannot be shown."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DOTS_PER_INCH, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def for_page(svg: str, prefix: str, label: str) -> str:
    """Make an SVG part of a page: ids that no other figure has, and a label for those who cannot see it."""
    owned = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", svg)
    return owned.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)


def for_file(svg: str) -> str:
    """Make an SVG a file that can be read on light and dark pages."""
    return svg.replace(">", f">\n {FILE_STYLE}", 1)
