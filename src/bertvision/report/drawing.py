"""What all figures are drawn with: one look, styles of models, panels with one legend; as SVG and PNG."""

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bertvision.records import ResultKind, RunRecord
from bertvision.report.measures import Measure, measures_of
from bertvision.report.pictures import Draw, Drawing
from bertvision.report.results import Result, largest_fraction, trained
from bertvision.tables import Statistic

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
WIDTH = 5.0  # inches: narrow, so that the text is still readable where a phone shrinks the figure to 360 pixels
PANEL_HEIGHT = 2.5
LOW_PANEL_HEIGHT = 1.9  # where there are more than three
LEGEND_LINE_HEIGHT = 0.23
MOST_MODELS = 12  # in a figure whose legend names them
LONG_LABEL = 18  # characters; two longer labels do not fit side by side

# Okabe and Ito's palette for all kinds of colour vision, without black and yellow, which vanish on dark or light pages.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # one more than colours, so that 42 series differ in one or the other
LineStyle = Literal["-", "--", ":", "-.", ""]
LINES: dict[ResultKind, LineStyle] = {"baseline": "-.", "encoder": "-", "head": "-", "control": "--", "ensemble": ":"}


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


class Style(NamedTuple):
    """How a series looks."""

    color: str
    marker: str
    line: LineStyle


ENCODER_STYLE = Style(INK, "*", "-")
BASELINE_STYLE = Style(INK, "", "-.")


class Series(NamedTuple):
    """Points with error bars."""

    label: str
    style: Style
    x: list[float]
    y: list[Statistic]


def main_measure(rows: Sequence[Result]) -> Measure:
    """Return the measure that figures of these rows show."""
    return measures_of([row.records[0] for row in rows]).main_measure


def title_of(measure: Measure) -> str:
    """Write a measure as a title."""
    return measure.head[0].upper() + measure.head[1:]


def fraction_label(row: Result) -> str:
    """Say in a title which fraction a figure shows."""
    return "encoder as given" if row.fraction is None else f"fraction {row.fraction_text}"


def is_study(rows: Sequence[Result]) -> bool:
    """Return whether rows compare ways of tuning: then several of them are encoders."""
    return len({row.name for row in rows if row.kind == "encoder"}) > 1


def few_models(rows: Sequence[Result]) -> list[Result]:
    """Keep what a figure with a legend can show: of many models all but heads, and the best heads at the last fraction.

    Of many ways of tuning the best are kept, too. The order stays, and so do rows of other fractions of the models that
    are kept.
    """
    names = dict.fromkeys(row.name for row in trained(rows))
    if len(names) <= MOST_MODELS:
        return list(rows)
    key = main_measure(rows).key
    last = [row for row in largest_fraction(trained(rows)) if key in row.scores]
    others = {row.name for row in rows if row.kind == "baseline" or not (is_study(rows) or row.kind == "head")}
    best = sorted((row for row in last if row.name not in others), key=lambda row: -row.scores[key].mean)
    kept = others | {row.name for row in best[: max(0, MOST_MODELS - len(others))]}
    return [row for row in rows if row.name in kept]


def title_of_few(rows: Sequence[Result], shown: Sequence[Result], title: str) -> str:
    """Say in a title where some models are left out."""
    all_names, names = ({row.name for row in trained(each)} for each in (rows, shown))
    return title if len(names) == len(all_names) else f"{title}, the best of {len(all_names)} models"


def row_styles(rows: Sequence[Result]) -> dict[str, Style]:
    """Return for every model a look of its own, the same in all figures of these rows."""
    kinds = {row.name: row.kind for row in rows}
    fixed = {"encoder": ENCODER_STYLE, "baseline": BASELINE_STYLE}
    if is_study(rows):
        del fixed["encoder"]  # there are several
    others = [name for name, kind in kinds.items() if kind not in fixed]
    styles = {
        name: Style(cycled(PALETTE, number), cycled(MARKERS, number), LINES[kinds[name]])
        for number, name in enumerate(others)
    }
    return {name: styles[name] if name in styles else fixed[kind] for name, kind in kinds.items()}


def cycled(values: Sequence[str], number: int) -> str:
    """Begin again where values run out."""
    return values[number % len(values)]


def panels(number: int, legend: dict[str, Style], *, height: float | None = None) -> tuple[Figure, list[Axes]]:
    """Lay out panels below one another, with one legend under them."""
    columns = 1 if any(len(label) > LONG_LABEL for label in legend) or len(legend) < 4 else 2
    lines = math.ceil(len(legend) / columns) + 1
    each = height or (PANEL_HEIGHT if number <= 3 else LOW_PANEL_HEIGHT)
    figure = Figure(figsize=(WIDTH, number * each + lines * LEGEND_LINE_HEIGHT), layout="constrained")
    axes = figure.subplots(number, 1, sharex=True, squeeze=False)
    handles = [_legend_line(style) for style in legend.values()]
    figure.legend(handles, list(legend), loc="outside lower left", ncols=columns, handlelength=3)
    return figure, list(axes[:, 0])


def draw_series(axis: Axes, series: Series) -> None:
    """Draw points, the line through them, and their deviations."""
    means = [score.mean for score in series.y]
    deviations = [math.nan if score.deviation is None else score.deviation for score in series.y]
    bars = None if all(map(math.isnan, deviations)) else deviations
    color, marker, line = series.style
    axis.errorbar(series.x, means, yerr=bars, color=color, marker=marker, linestyle=line)


def draw_baselines(axis: Axes, rows: Sequence[Result], key: str) -> None:
    """Draw what can be had without a model as a line across."""
    for row in rows:
        if row.kind == "baseline" and key in row.scores:
            axis.axhline(row.scores[key].mean, color=BASELINE_STYLE.color, linestyle=BASELINE_STYLE.line, linewidth=1)


def curves_of(rows: Sequence[Result], measure: Measure, place_of: Callable[[Result], float]) -> list[Series]:
    """Return a measure of every model over places, such as fractions; what has no score is left out."""
    curves: dict[str, Series] = {}
    styles = row_styles(rows)
    for row in trained(rows):
        if (score := row.scores.get(measure.key)) is not None:
            curve = curves.setdefault(row.name, Series(row.name, styles[row.name], [], []))
            curve.x.append(place_of(row))
            curve.y.append(score)
    return list(curves.values())


def draw_curves(axis: Axes, curves: Sequence[Series], rows: Sequence[Result], measure: Measure) -> None:
    """Draw curves of models, and the baselines among the rows."""
    for series in curves:
        draw_series(axis, series)
    draw_baselines(axis, rows, measure.key)


def _legend_line(style: Style) -> Line2D:
    return Line2D([], [], color=style.color, marker=style.marker, linestyle=style.line)
