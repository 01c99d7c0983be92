"""Records of one experiment -> figures of the main score against what it costs: parameters, training, inference."""

from collections.abc import Callable, Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from bertvision.records import ResultKind, RunRecord
from bertvision.report.costs import FROZEN, HEADS, INSERTED, OUTPUTS, all_trained, part_of
from bertvision.report.drawing import (
    INK,
    PALETTE,
    WIDTH,
    Series,
    Style,
    curves_of,
    draw_baselines,
    draw_curves,
    draw_series,
    few_models,
    fraction_label,
    is_study,
    main_measure,
    panels,
    row_styles,
    title_of,
    title_of_few,
)
from bertvision.report.measures import Measure, measures_of
from bertvision.report.results import Result, full_results, largest_fraction, trained
from bertvision.tables import Statistic

KIND_MARKERS: dict[ResultKind, str] = {"encoder": "*", "head": "o", "control": "s", "ensemble": "^"}
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
FEW_POWERS = 100  # times as many weights as the smallest model: below it, one tick or two would have a number


def score_by_parameters(records: Iterable[RunRecord]) -> Figure | None:
    """Draw the main score against trainable parameters, for the largest fraction that has scores; None without."""
    every, measure = _scored(records)
    if is_study(every):
        return _study_by_parameters(every)
    rows = few_models(every)
    models = largest_fraction(trained(rows))
    if not models:
        return None
    styles = _point_styles(rows)
    legend = {f"{number}  {row.name}": styles[row.name] for number, row in enumerate(models, start=1)}
    figure, (axis,) = panels(1, {**legend, **_baselines(rows, styles)})
    for number, row in enumerate(models, start=1):
        _draw_point(axis, row.parameters, row.scores[measure.key], styles[row.name], str(number))
    draw_baselines(axis, rows, measure.key)
    _scale_by_powers(axis, [row.parameters for row in models])
    title = f"{title_of(main_measure(rows))}, {fraction_label(models[0])}"
    axis.set_title(title_of_few(every, rows, title), loc="left")
    axis.set_xlabel("trainable parameters")
    axis.margins(0.12)
    return figure


def score_by_training(records: Iterable[RunRecord]) -> Figure | None:
    """Draw the main score against the seconds of training; None without scores."""
    return _by_seconds(records, "seconds of training", lambda row: row.seconds)


def score_by_inference(records: Iterable[RunRecord]) -> Figure | None:
    """Draw the main score against the seconds of the pass over dev; None without scores."""
    return _by_seconds(records, "seconds of the pass over dev", lambda row: row.inference_seconds)


def _study_by_parameters(rows: Sequence[Result]) -> Figure:
    """Count for a head what was trained below it as well: without it the head would not have its score."""
    models = largest_fraction(trained(rows))
    counts = {row.name: count for row in models if (count := all_trained(row.records[0])) is not None}
    label = "trained parameters, those below a head included"
    if len(counts) < len(models):  # costs were not noted
        counts, label = {row.name: row.parameters for row in models}, "trained parameters, those below a head left out"
    figure, axis = draw_study(rows, label, lambda row: counts[row.name])
    _scale_by_powers(axis, list(counts.values()))
    return figure


def _by_seconds(records: Iterable[RunRecord], label: str, seconds_of: Callable[[Result], float]) -> Figure | None:
    every, measure = _scored(records)
    if is_study(every):
        return draw_study(every, label, seconds_of)[0]
    rows = few_models(every)
    if not trained(rows):
        return None
    figure, (axis,) = panels(1, row_styles(rows))
    draw_curves(axis, curves_of(rows, measure, seconds_of), rows, measure)
    axis.set_title(title_of_few(every, rows, title_of(main_measure(rows))), loc="left")
    axis.set_xlabel(label)
    axis.set_xlim(left=0)
    return figure


def _scored(records: Iterable[RunRecord]) -> tuple[list[Result], Measure]:
    rows = full_results(records)
    measure = main_measure(rows)
    return [row for row in rows if measure.key in row.scores], measure


def _point_styles(rows: Sequence[Result]) -> dict[str, Style]:
    styles = row_styles(rows)
    points = {row.name: KIND_MARKERS[row.kind] for row in trained(rows)}
    return {
        name: style._replace(marker=points[name], line="") if name in points else style
        for name, style in styles.items()
    }


def _baselines(rows: Sequence[Result], styles: dict[str, Style]) -> dict[str, Style]:
    return {row.name: styles[row.name] for row in rows if row.kind == "baseline"}


def _draw_point(axis: Axes, parameters: int, score: Statistic, style: Style, label: str) -> None:
    draw_series(axis, Series(label, style, [float(parameters)], [score]))
    axis.annotate(label, (parameters, score.mean), textcoords="offset points", xytext=(6, 4), fontsize=10)


def _scale_by_powers(axis: Axes, counts: Sequence[int]) -> None:
    if all(counts):
        axis.set_xscale("log")
        if max(counts) < FEW_POWERS * min(counts):
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_minor_formatter(NullFormatter())  # its own writes formulas, which are not parsed here
    else:  # a logarithm has no place for a model without weights of its own
        axis.set_xscale("symlog", linthresh=min((count for count in counts if count), default=1))
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))


def draw_study(rows: Sequence[Result], label: str, x_of: Callable[[Result], float]) -> tuple[Figure, Axes]:
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


def _measure(rows: Sequence[Result]) -> Measure:
    """Return best F1 where all rows have it: at the threshold 0 they mostly differ in how often they abstain."""
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
