"""Rows of many methods -> one point each, its name beside the axes, so that twenty-five of them can be told apart."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bertvision.report.drawing import INK
from bertvision.report.efficiency import FROZEN, HEADS, INSERTED, OUTPUTS, part_of
from bertvision.report.measures import Measure, measures_of
from bertvision.report.plots import (
    PALETTE,
    WIDTH,
    Series,
    Style,
    draw_baselines,
    draw_series,
    fraction_label,
    main_measure,
    panels,
    title_of,
)
from bertvision.report.results import Row, largest_fraction, trained

STYLES = {
    FROZEN: Style(INK, "*", ""),
    INSERTED: Style(PALETTE[0], "s", ""),
    OUTPUTS: Style(PALETTE[1], "^", ""),
    HEADS: Style(PALETTE[2], "o", ""),
}
SIZE = 8.5  # points, of names
LINE_HEIGHT = 0.165  # inches, of a name
LEAST_HEIGHT = 2.5  # inches
AROUND = 0.9  # inches, of title and label


def draw_study(rows: Sequence[Row], label: str, x_of: Callable[[Row], float]) -> tuple[Figure, Axes]:
    """Draw every method's score at the largest fraction; the names stand in the order of scores."""
    models = largest_fraction(trained(rows))
    measure = _measure(models)
    parts = {row.name: part_of(row.records[0]) for row in models}
    legend = {part: style for part, style in STYLES.items() if part in parts.values()}
    height = max(LEAST_HEIGHT, len(models) * LINE_HEIGHT + AROUND)
    figure, (axis,) = panels(1, legend, height=height)
    figure.set_figwidth(1.3 * WIDTH)
    for row in models:
        draw_series(axis, Series(row.name, STYLES[parts[row.name]], [x_of(row)], [row.scores[measure.key]]))
    draw_baselines(axis, rows, measure.key)
    axis.margins(0.08)
    ranked = sorted(models, key=lambda row: (-row.scores[measure.key].mean, x_of(row)))
    bottom, top = axis.get_ylim()
    wished = [(row.scores[measure.key].mean - bottom) / (top - bottom) for row in ranked]
    for row, place in zip(ranked, apart(wished, LINE_HEIGHT / (height - AROUND)), strict=True):
        point = (x_of(row), row.scores[measure.key].mean)
        _name(axis, row.name, STYLES[parts[row.name]].color, point, place)
    axis.set_title(f"{title_of(measure)}, {fraction_label(models[0])}", loc="left")
    axis.set_xlabel(label)
    return figure, axis


def _measure(rows: Sequence[Row]) -> Measure:
    """Give best F1 where all rows have it: at the threshold 0 they mostly differ in where their zero lies."""
    columns = measures_of([row.records[0] for row in rows]).columns
    best = [each for each in columns if each.key == "best_f1" and all(each.key in row.scores for row in rows)]
    return best[0] if best else main_measure(rows)


def apart(wished: Sequence[float], distance: float) -> list[float]:
    """Move heights from 1 to 0, the highest first, so far from each other that names do not overlap."""
    heights: list[float] = []
    for height in wished:
        heights.append(min(height, heights[-1] - distance) if heights else min(height, 1.0))
    lowest = 0.0
    for place in reversed(range(len(heights))):
        heights[place] = max(heights[place], lowest)
        lowest = heights[place] + distance
    return heights


def _name(axis: Axes, name: str, color: str, point: tuple[float, float], height: float) -> None:
    """Write a name at the right, tied to its point."""
    tie = {"arrowstyle": "-", "color": color, "alpha": 0.4, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 3}
    axis.annotate(
        name,
        point,
        xytext=(1.1, height),
        textcoords="axes fraction",
        fontsize=SIZE,
        verticalalignment="center",
        arrowprops={**tie, "relpos": (0.0, 0.5)},
        annotation_clip=False,
    )
