"""Records of one experiment -> figures of the main score against parameters, training time and inference time."""

from collections.abc import Callable, Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from bertvision.records import ResultKind, RunRecord
from bertvision.report.drawing import (
    Series,
    Style,
    curves_of,
    draw_baselines,
    draw_curves,
    draw_series,
    few_models,
    fraction_label,
    main_measure,
    panels,
    row_styles,
    title_of,
    title_of_few,
)
from bertvision.report.measures import Measure
from bertvision.report.results import Result, full_results, largest_fraction, trained
from bertvision.tables import Statistic

KIND_MARKERS: dict[ResultKind, str] = {"encoder": "*", "head": "o", "control": "s", "ensemble": "^"}
FEW_POWERS = 100  # times as many weights as the smallest model: below it, one tick or two would have a number


def score_by_parameters(records: Iterable[RunRecord]) -> Figure | None:
    """Draw the main score against trainable parameters, for the largest fraction that has scores; None without."""
    every, measure = scored_results(records)
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
    scale_by_powers(axis, [row.parameters for row in models])
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


def scored_results(records: Iterable[RunRecord]) -> tuple[list[Result], Measure]:
    """Return the results that have the main score, and that score."""
    rows = full_results(records)
    measure = main_measure(rows)
    return [row for row in rows if measure.key in row.scores], measure


def scale_by_powers(axis: Axes, counts: Sequence[int]) -> None:
    """Let an axis of counts be logarithmic, with plain numbers at its ticks."""
    if all(counts):
        axis.set_xscale("log")
        if max(counts) < FEW_POWERS * min(counts):
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_minor_formatter(NullFormatter())  # its own writes formulas, which are not parsed here
    else:  # a logarithm has no place for a model without weights of its own
        axis.set_xscale("symlog", linthresh=min((count for count in counts if count), default=1))
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))


def _by_seconds(records: Iterable[RunRecord], label: str, seconds_of: Callable[[Result], float]) -> Figure | None:
    every, measure = scored_results(records)
    rows = few_models(every)
    if not trained(rows):
        return None
    figure, (axis,) = panels(1, row_styles(rows))
    draw_curves(axis, curves_of(rows, measure, seconds_of), rows, measure)
    axis.set_title(title_of_few(every, rows, title_of(main_measure(rows))), loc="left")
    axis.set_xlabel(label)
    axis.set_xlim(left=0)
    return figure


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
