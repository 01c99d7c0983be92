"""Records of one experiment -> figures, as SVG text; a figure whose records are missing is None."""

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from bertvision.records import RowKind, RunRecord, fraction_name
from bertvision.report.rows import Row, Statistic, table_rows
from bertvision.report.svg import INK, house_look, to_svg

WIDTH = 5.0  # inches: narrow, so that the text is still readable where a phone shrinks the figure to 360 pixels
PANEL_HEIGHT = 2.5
LOW_PANEL_HEIGHT = 1.9  # where there are more than three
LEGEND_LINE_HEIGHT = 0.23
LONG_LABEL = 18  # characters; two longer labels do not fit side by side

# Okabe and Ito's palette for all kinds of colour vision, without black and yellow, which vanish on dark or light pages.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # one more than colours, so that 42 series differ in one or the other
EARLY, LATE = "#0072B2", "#D55E00"
LineStyle = Literal["-", "--", ":", ""]
LINES: dict[RowKind, LineStyle] = {"encoder": "-", "head": "-", "control": "--", "ensemble": ":"}
KIND_MARKERS: dict[RowKind, str] = {"encoder": "*", "head": "o", "control": "s", "ensemble": "^"}

Metric = Literal["f1", "span_f1"]
METRICS: tuple[Metric, ...] = ("f1", "span_f1")


class Style(NamedTuple):
    """How a series looks."""

    color: str
    marker: str
    line: LineStyle


ENCODER_STYLE = Style(INK, "*", "-")
UNIFORM_STYLE = Style(INK, "", "--")


class Series(NamedTuple):
    """Points with error bars."""

    label: str
    style: Style
    x: list[float]
    y: list[Statistic]


def finetuning_curve(records: Iterable[RunRecord]) -> str | None:
    """Draw scores against the fraction of an epoch that the encoder was tuned for; None below two fractions."""
    rows = table_rows(records)
    panels = {_title(rows, metric): curves for metric in METRICS if (curves := _curves(rows, metric))}
    if len({place for panel in panels.values() for series in panel for place in series.x}) < 2:
        return None
    with house_look():
        legend = {series.label: series.style for panel in panels.values() for series in panel}
        figure, axes = _panels(len(panels), legend)
        for axis, (title, panel) in zip(axes, panels.items(), strict=True):
            axis.set_title(title, loc="left")
            for series in panel:
                _draw_series(axis, series)
        axes[-1].set_xlabel("fraction of an epoch the encoder was tuned for")
        return to_svg(figure)


def layer_weights(records: Iterable[RunRecord]) -> str | None:
    """Draw how much each head weighs each layer, a panel per head and a line per fraction; None without such heads."""
    rows = [row for row in table_rows(records) if row.layer_weights]
    if not rows:
        return None
    styles = _fraction_styles(rows)
    with house_look():
        names = list(dict.fromkeys(row.name for row in rows))
        figure, axes = _panels(len(names), {**styles, "uniform": UNIFORM_STYLE})
        for axis, name in zip(axes, names, strict=True):
            _draw_weights(axis, name, [row for row in rows if row.name == name], styles)
        axes[-1].set_xlabel("layer (0: embeddings)")
        return to_svg(figure)


def f1_by_parameters(records: Iterable[RunRecord]) -> str | None:
    """Draw F1 against trainable parameters for the largest fraction that has scores; None without scores."""
    rows = largest_fraction([row for row in table_rows(records) if row.f1])
    if not rows:
        return None
    styles = _point_styles(rows)
    with house_look():
        legend = {f"{number}  {name}": style for number, (name, style) in enumerate(styles.items(), start=1)}
        figure, (axis,) = _panels(1, legend)
        _draw_points(axis, rows, styles)
        _scale_by_powers(axis, [row.parameters for row in rows])
        axis.set_title(f"{_title(rows, 'f1')}, {_fraction_text(rows[0])}", loc="left")
        axis.set_xlabel("trainable parameters")
        axis.margins(0.12)
        return to_svg(figure)


def largest_fraction(rows: Sequence[Row]) -> list[Row]:
    """Keep the rows of the largest fraction among them."""
    largest = max((_place(row) for row in rows), default=None)
    return [row for row in rows if _place(row) == largest]


def _place(row: Row) -> float:
    return 0.0 if row.fraction is None else row.fraction  # an encoder used as given was tuned for nothing


def _fraction_text(row: Row) -> str:
    return "encoder as given" if row.fraction is None else f"fraction {fraction_name(row.fraction)}"


def _title(rows: Sequence[Row], metric: Metric) -> str:
    if metric == "span_f1":
        return "F1 of the best span, answerable questions"
    return "F1"


def _curves(rows: Sequence[Row], metric: Metric) -> list[Series]:
    curves: dict[str, Series] = {}
    styles = _row_styles(rows)
    for row in rows:
        if (score := row.f1 if metric == "f1" else row.span_f1) is not None:
            curve = curves.setdefault(row.name, Series(row.name, styles[row.name], [], []))
            curve.x.append(_place(row))
            curve.y.append(score)
    return list(curves.values())


def _row_styles(rows: Sequence[Row]) -> dict[str, Style]:
    kinds = {row.name: row.kind for row in rows}
    others = [name for name, kind in kinds.items() if kind != "encoder"]
    styles = {
        name: Style(_cycled(PALETTE, number), _cycled(MARKERS, number), LINES[kinds[name]])
        for number, name in enumerate(others)
    }
    return {name: styles.get(name, ENCODER_STYLE) for name in kinds}


def _point_styles(rows: Sequence[Row]) -> dict[str, Style]:
    styles = _row_styles(rows)
    return {row.name: styles[row.name]._replace(marker=KIND_MARKERS[row.kind], line="") for row in rows}


def _fraction_styles(rows: Sequence[Row]) -> dict[str, Style]:
    places = sorted({_place(row) for row in rows})
    return {
        f"fraction {place:g}": Style(_between(number / max(1, len(places) - 1)), _cycled(MARKERS, number), "-")
        for number, place in enumerate(places)
    }


def _between(share: float) -> str:
    pairs = zip(to_rgb(EARLY), to_rgb(LATE), strict=True)
    red, green, blue = (early + share * (late - early) for early, late in pairs)
    return to_hex((red, green, blue))


def _cycled(values: Sequence[str], number: int) -> str:
    return values[number % len(values)]


def _panels(number: int, legend: dict[str, Style]) -> tuple[Figure, list[Axes]]:
    columns = 1 if any(len(label) > LONG_LABEL for label in legend) or len(legend) < 4 else 2
    lines = math.ceil(len(legend) / columns) + 1
    height = number * (PANEL_HEIGHT if number <= 3 else LOW_PANEL_HEIGHT) + lines * LEGEND_LINE_HEIGHT
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(number, 1, sharex=True, squeeze=False)
    handles = [_legend_line(style) for style in legend.values()]
    figure.legend(handles, list(legend), loc="outside lower left", ncols=columns, handlelength=3)
    return figure, list(axes[:, 0])


def _legend_line(style: Style) -> Line2D:
    return Line2D([], [], color=style.color, marker=style.marker, linestyle=style.line)


def _draw_series(axis: Axes, series: Series) -> None:
    means = [score.mean for score in series.y]
    deviations = [math.nan if score.deviation is None else score.deviation for score in series.y]
    bars = None if all(map(math.isnan, deviations)) else deviations
    color, marker, line = series.style
    axis.errorbar(series.x, means, yerr=bars, color=color, marker=marker, linestyle=line)


def _draw_weights(axis: Axes, name: str, rows: Sequence[Row], styles: dict[str, Style]) -> None:
    for row in rows:
        weights = list(row.layer_weights or ())
        label = f"fraction {_place(row):g}"
        _draw_series(axis, Series(label, styles[label], [float(layer) for layer in range(len(weights))], weights))
    for layers in {len(row.layer_weights or ()) for row in rows}:
        axis.axhline(1 / layers, color=INK, linestyle="--", linewidth=1)
    axis.set_title(name, loc="left")
    axis.set_ylabel("weight")
    axis.set_ylim(bottom=0)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_points(axis: Axes, rows: Sequence[Row], styles: dict[str, Style]) -> None:
    points = [(row.name, float(row.parameters), row.f1) for row in rows if row.f1]
    for number, (name, parameters, score) in enumerate(points, start=1):
        _draw_series(axis, Series(name, styles[name], [parameters], [score]))
        axis.annotate(str(number), (parameters, score.mean), textcoords="offset points", xytext=(6, 4), fontsize=10)


def _scale_by_powers(axis: Axes, counts: Sequence[int]) -> None:
    if all(counts):
        axis.set_xscale("log")
    else:  # a logarithm has no place for a model without weights of its own
        axis.set_xscale("symlog", linthresh=min((count for count in counts if count), default=1))
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
