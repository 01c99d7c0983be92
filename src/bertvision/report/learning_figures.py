"""Records of one experiment -> figures of how its models learned, and of the numbers that the best one predicts."""

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from bertvision.records import RunRecord, TrainingPoint
from bertvision.report.drawing import (
    INK,
    PALETTE,
    Style,
    draw_baselines,
    few_models,
    fraction_label,
    main_measure,
    panels,
    row_styles,
    title_of,
)
from bertvision.report.headline import best_result, data_curves
from bertvision.report.results import Result, full_results, largest_fraction, trained

EQUAL = Style(INK, "", "--")
LARGE = 10_000  # numbers from which on axes have 500k in place of 500000


def training_curve(records: Iterable[RunRecord]) -> Figure | None:
    """Draw loss and held-out score over steps, of the first seed; None where no training was followed."""
    rows = [row for row in largest_fraction(trained(full_results(records))) if _points(row)]
    if not rows:
        return None
    shown = few_models(rows)
    curves = {"Loss": _curves(shown, "loss"), "Score while training": _curves(shown, "score")}
    found = {title: of for title, of in curves.items() if of}
    if not found:
        return None
    styles = {row.name: row_styles(rows)[row.name]._replace(marker="") for row in shown}
    figure, axes = panels(len(found), styles)
    for axis, (title, of) in zip(axes, found.items(), strict=True):
        for name, points in of.items():
            _draw(axis, points, styles[name])
        axis.set_title(f"{title}, {fraction_label(shown[0])}", loc="left")
    axes[-1].set_xlabel("step")
    return figure


def fewer_rows_curve(records: Sequence[RunRecord]) -> Figure | None:
    """Draw the main score of regressions that were fitted to fewer rows, each twice as many; None without any."""
    rows = full_results(records)
    curves = [curve for curve in data_curves(records) if curve.unit == "training rows"]
    if not curves:
        return None
    styles, measure = row_styles(rows), main_measure(rows)
    figure, (axis,) = panels(1, {curve.name: styles[curve.name] for curve in curves})
    for curve in curves:
        color, marker, line = styles[curve.name]
        axis.plot(*zip(*curve.points, strict=True), color=color, marker=marker, linestyle=line)
    draw_baselines(axis, rows, measure.key)
    axis.set_xscale("log")
    amounts = sorted({point.data for curve in curves for point in curve.points})
    axis.set_xticks(amounts, [f"{each:,g}" for each in amounts])
    axis.minorticks_off()
    axis.set_title(f"{title_of(measure)}, encoder as given", loc="left")
    axis.set_xlabel("training rows")
    return figure


def predicted_by_true(records: Iterable[RunRecord]) -> Figure | None:
    """Draw the numbers that the best model predicts against the true ones; None without any."""
    best = best_result(list(records))
    points = [] if best is None else best.records[0].scatter
    if best is None or not points:
        return None
    figure, (axis,) = panels(1, {best.name: Style(PALETTE[0], "o", ""), "equal": EQUAL}, height=3.6)
    axis.plot(*zip(*points, strict=True), color=PALETTE[0], marker="o", linestyle="", alpha=0.4, markersize=4)
    ends = [min(map(min, points)), max(map(max, points))]
    axis.plot(ends, ends, color=EQUAL.color, linestyle=EQUAL.line, linewidth=1)
    if max(map(abs, ends)) >= LARGE:  # labels as long as 500000 would run into each other
        for each in (axis.xaxis, axis.yaxis):
            each.set_major_formatter(EngFormatter(sep=""))
    axis.set_title(f"Predicted number, {fraction_label(best)}", loc="left")
    axis.set_xlabel("true number")
    return figure


def _points(row: Result) -> list[TrainingPoint]:
    return row.records[0].training


def _curves(rows: Iterable[Result], what: str) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        known = [(each.step, value) for each in _points(row) if (value := getattr(each, what)) is not None]
        if known:
            found[row.name] = [(float(step), float(value)) for step, value in known]
    return found


def _draw(axis: Axes, points: list[tuple[float, float]], style: Style) -> None:
    marker = "." if len(points) < 30 else ""
    axis.plot(*zip(*points, strict=True), color=style.color, linestyle=style.line, marker=marker)
