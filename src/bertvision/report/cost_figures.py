"""Records of one experiment -> the main score against what it costs: parameters, training, inference."""

from collections.abc import Callable, Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from bertvision.records import ResultKind, RunRecord
from bertvision.report.efficiency import all_trained
from bertvision.report.plots import (
    Series,
    Style,
    draw_baselines,
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
from bertvision.report.results import Row, Statistic, full_rows, largest_fraction, trained
from bertvision.report.study import draw_study

KIND_MARKERS: dict[ResultKind, str] = {"encoder": "*", "head": "o", "control": "s", "ensemble": "^"}


def score_by_parameters(records: Iterable[RunRecord]) -> Figure | None:
    """Draw the main score against trainable parameters, for the largest fraction that has scores; None without."""
    every, key = _scored(records)
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
        _draw_point(axis, row.parameters, row.scores[key], styles[row.name], str(number))
    draw_baselines(axis, rows, key)
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


def _study_by_parameters(rows: Sequence[Row]) -> Figure:
    """Count for a head what was trained below it as well: without it the head would not have its score."""
    models = largest_fraction(trained(rows))
    counts = {row.name: count for row in models if (count := all_trained(row.records[0])) is not None}
    label = "trained parameters, those below a head included"
    if len(counts) < len(models):  # records of before that was noted
        counts, label = {row.name: row.parameters for row in models}, "trained parameters, those below a head left out"
    figure, axis = draw_study(rows, label, lambda row: counts[row.name])
    _scale_by_powers(axis, list(counts.values()))
    return figure


def _by_seconds(records: Iterable[RunRecord], label: str, seconds_of: Callable[[Row], float]) -> Figure | None:
    every, key = _scored(records)
    if is_study(every):
        return draw_study(every, label, seconds_of)[0]
    rows = few_models(every)
    if not trained(rows):
        return None
    styles = row_styles(rows)
    curves: dict[str, Series] = {}
    for row in trained(rows):
        curve = curves.setdefault(row.name, Series(row.name, styles[row.name], [], []))
        curve.x.append(seconds_of(row))
        curve.y.append(row.scores[key])
    figure, (axis,) = panels(1, styles)
    for series in curves.values():
        draw_series(axis, series)
    draw_baselines(axis, rows, key)
    axis.set_title(title_of_few(every, rows, title_of(main_measure(rows))), loc="left")
    axis.set_xlabel(label)
    axis.set_xlim(left=0)
    return figure


def _scored(records: Iterable[RunRecord]) -> tuple[list[Row], str]:
    rows = full_rows(records)
    key = main_measure(rows).key
    return [row for row in rows if key in row.scores], key


def _point_styles(rows: Sequence[Row]) -> dict[str, Style]:
    styles = row_styles(rows)
    points = {row.name: KIND_MARKERS[row.kind] for row in trained(rows)}
    return {
        name: style._replace(marker=points[name], line="") if name in points else style
        for name, style in styles.items()
    }


def _baselines(rows: Sequence[Row], styles: dict[str, Style]) -> dict[str, Style]:
    return {row.name: styles[row.name] for row in rows if row.kind == "baseline"}


def _draw_point(axis: Axes, parameters: int, score: Statistic, style: Style, label: str) -> None:
    draw_series(axis, Series(label, style, [float(parameters)], [score]))
    axis.annotate(label, (parameters, score.mean), textcoords="offset points", xytext=(6, 4), fontsize=10)


def _scale_by_powers(axis: Axes, counts: Sequence[int]) -> None:
    if all(counts):
        axis.set_xscale("log")
    else:  # a logarithm has no place for a model without weights of its own
        axis.set_xscale("symlog", linthresh=min((count for count in counts if count), default=1))
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
