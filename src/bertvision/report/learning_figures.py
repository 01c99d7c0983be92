"""Records of one experiment -> figures of how its models learned; one whose records are missing is None.

And the record of a search -> a table of its best trials, and a figure: what matters, and how the score rose.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bertvision.files import write_bytes, write_text
from bertvision.records import RunRecord, SearchRecord, SearchTrial, TrainingPoint
from bertvision.report.drawing import (
    INK,
    MARKERS,
    PALETTE,
    WIDTH,
    Series,
    Style,
    curves_of,
    cycled,
    draw_baselines,
    draw_curves,
    draw_series,
    few_models,
    fraction_label,
    house_look,
    main_measure,
    panels,
    row_styles,
    title_of,
    title_of_few,
    to_png,
    to_svg,
)
from bertvision.report.headline import data_curves
from bertvision.report.measures import Measure, measures_of
from bertvision.report.pictures import for_file
from bertvision.report.results import Result, full_results, largest_fraction, results_of, trained
from bertvision.report.tables import rate_text
from bertvision.tables import Cell, Column, Number, Table

EARLY, LATE = "#0072B2", "#D55E00"
UNIFORM_STYLE = Style(INK, "", "--")
SPAN = "best_span_HasAns_f1"
POOLED_AT = -2.0  # apart from the layers
TITLES = {SPAN: "F1 of the best span"}


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


def _fewer_rows_curve(records: Sequence[RunRecord]) -> Figure | None:
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


def finetuning_curve(records: Iterable[RunRecord]) -> Figure | None:
    """Draw scores against the fraction of an epoch that the encoder was tuned for; None below two fractions."""
    every = full_results(records)
    rows = few_models(every)
    found = {
        measure: curves
        for measure in _curve_measures(rows)
        if (curves := curves_of(rows, measure, lambda row: row.place))
    }
    if len({place for curves in found.values() for series in curves for place in series.x}) < 2:
        return None
    figure, axes = panels(len(found), row_styles(rows))
    for axis, (measure, curves) in zip(axes, found.items(), strict=True):
        axis.set_title(title_of_few(every, rows, TITLES.get(measure.key, title_of(measure))), loc="left")
        draw_curves(axis, curves, rows, measure)
    axes[-1].set_xlabel("fraction of an epoch the encoder was tuned for")
    return figure


def less_data_curve(records: Iterable[RunRecord]) -> Figure | None:
    """Draw the main score against the data that models were trained on: shares of it, or fewer rows; None without."""
    records = list(records)
    rows = largest_fraction(trained(results_of(records)))
    if len({row.data for row in rows}) < 2:
        return _fewer_rows_curve(records)
    measure = main_measure(rows)
    figure, (axis,) = panels(1, row_styles(rows))
    draw_curves(axis, curves_of(rows, measure, lambda row: 100 * row.data), rows, measure)
    axis.set_title(f"{title_of(measure)}, {fraction_label(rows[0])}", loc="left")
    axis.set_xlabel("percent of the data that heads were trained on")
    return figure


def layer_weights(records: Iterable[RunRecord]) -> Figure | None:
    """Draw how much each head weighs each layer, a panel per head and a line per fraction; None without such heads."""
    rows = [row for row in full_results(records) if row.layer_weights]
    if not rows:
        return None
    styles = _fraction_styles(rows)
    names = list(dict.fromkeys(row.name for row in rows))
    figure, axes = panels(len(names), {**styles, "uniform": UNIFORM_STYLE})
    for axis, name in zip(axes, names, strict=True):
        _draw_weights(axis, name, [row for row in rows if row.name == name], styles)
    axes[-1].set_xlabel("layer (0: embeddings)")
    states = [state for row in rows for state in row.weighted_states]
    if "pooled" in states:
        _mark_pooled(axes[-1], 1 + max(state for state in states if isinstance(state, int)))
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


def _curve_measures(rows: Sequence[Result]) -> list[Measure]:
    measures = measures_of([row.records[0] for row in rows])
    return [measures.main_measure, *(each for each in measures.columns if each.key == SPAN)]


def _fraction_styles(rows: Sequence[Result]) -> dict[str, Style]:
    labels = list(dict.fromkeys(map(fraction_label, sorted(rows, key=lambda row: row.place))))
    return {
        label: Style(_between(number / max(1, len(labels) - 1)), cycled(MARKERS, number), "-")
        for number, label in enumerate(labels)
    }


def _between(share: float) -> str:
    pairs = zip(to_rgb(EARLY), to_rgb(LATE), strict=True)
    red, green, blue = (early + share * (late - early) for early, late in pairs)
    return to_hex((red, green, blue))


def _draw_weights(axis: Axes, name: str, rows: Sequence[Result], styles: dict[str, Style]) -> None:
    for row in rows:
        weights = dict(zip(row.weighted_states, row.layer_weights or (), strict=True))
        label = fraction_label(row)
        if (pooled := weights.pop("pooled", None)) is not None:
            draw_series(axis, Series(label, styles[label], [POOLED_AT], [pooled]))
        draw_series(axis, Series(label, styles[label], list(map(float, weights)), list(weights.values())))
    for layers in {len(row.layer_weights or ()) for row in rows}:
        axis.axhline(1 / layers, color=INK, linestyle="--", linewidth=1)
    axis.set_title(name, loc="left")
    axis.set_ylabel("weight")
    axis.set_ylim(0, 1.05 * axis.get_ylim()[1])  # room for the marks at the top
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _mark_pooled(axis: Axes, layers: int) -> None:
    shown = range(0, layers, 1 + layers // 14)
    axis.set_xticks([POOLED_AT, *shown], ["pooled", *map(str, shown)])
    axis.set_xlabel("layer (0: embeddings), and the pooler's output")


FIGURE = "importance"
BAR_HEIGHT, TRIALS_HEIGHT = 0.28, 3.0  # inches
RATES = ("lr",)
MOST_TRIALS = 10  # of a table


def trials_table(record: SearchRecord) -> Table:
    """Lay out the best trials; what all trials have in common is left out."""
    ranked = sorted((trial for trial in record.trials if trial.score is not None), key=_rank)
    names = [name for name, values in record.space.items() if isinstance(values, dict) or len(values) > 1]
    rows = tuple(
        (str(trial.number), *(_setting(name, trial.settings.get(name)) for name in names), _score(trial), trial.note)
        for trial in ranked[:MOST_TRIALS]
    )
    settings = [Column(name, "left") for name in names]
    columns = (Column("trial", "left"), *settings, Column(f"held-out {record.metric}"), Column("note", "left"))
    return Table(f"The best of {len(record.trials)} trials", columns, rows)


def write_search_figure(folder: Path, record: SearchRecord) -> Path:
    """Draw FOLDER/importance.svg and .png."""
    with house_look():
        figure = search_figure(record)
        write_text(folder / f"{FIGURE}.svg", for_file(to_svg(figure)))
        write_bytes(folder / f"{FIGURE}.png", to_png(figure))
    return folder / f"{FIGURE}.png"


def search_figure(record: SearchRecord) -> Figure:
    """Draw each parameter's importance, where there are trials enough for it, and the score of every trial."""
    bars = BAR_HEIGHT * len(record.importances) + 0.9 if record.importances else 0.0
    heights = [height for height in (bars, TRIALS_HEIGHT) if height]
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    axes = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    if record.importances:
        _draw_importances(axes[0], record.importances)
    _draw_trials(axes[-1], record)
    figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside lower left", ncols=3)
    return figure


def _draw_importances(axis: Axes, importances: dict[str, float]) -> None:
    ranked = sorted(importances.items(), key=lambda pair: pair[1])
    bars = axis.barh([name for name, _ in ranked], [100 * share for _, share in ranked], color=PALETTE[0], height=0.6)
    axis.bar_label(bars, fmt="%.0f", padding=3, color=INK)
    axis.set_title("Share of the variance of scores, %", loc="left")
    axis.margins(x=0.12)
    axis.grid(axis="y", visible=False)


def _draw_trials(axis: Axes, record: SearchRecord) -> None:
    """Draw complete trials as dots, pruned ones as rings, and the best score so far as a line."""
    complete = [trial for trial in record.trials if trial.state == "complete" and trial.score is not None]
    pruned = [trial for trial in record.trials if trial.state == "pruned" and trial.score is not None]
    axis.plot(*_trial_points(complete), color=PALETTE[0], marker="o", linestyle="", markersize=4, label="complete")
    if pruned:
        hollow: dict[str, Any] = {"markerfacecolor": "none", "markersize": 4}
        axis.plot(*_trial_points(pruned), color=PALETTE[1], marker="o", linestyle="", label="pruned", **hollow)
    best = [max(trial.score or 0.0 for trial in complete[: place + 1]) for place in range(len(complete))]
    axis.step([trial.number for trial in complete], best, where="post", color=INK, linewidth=1.2, label="best so far")
    axis.set_title(f"Held-out {record.metric} of every trial", loc="left")
    axis.set_xlabel("trial")


def _trial_points(trials: Iterable[SearchTrial]) -> tuple[list[int], list[float]]:
    found = [(trial.number, trial.score) for trial in trials if trial.score is not None]
    return [number for number, _ in found], [score for _, score in found]


def _rank(trial: SearchTrial) -> tuple[bool, float, int]:
    return (trial.state != "complete", -(trial.score or 0.0), trial.number)


def _score(trial: SearchTrial) -> Cell:
    return "" if trial.score is None else Number(trial.score, ".2f")


def _setting(name: str, value: Any) -> str:  # noqa: ANN401 (a value of the space)
    if value is None:  # a head without it
        return ""
    return (
        rate_text(float(f"{value:.2g}")) if name in RATES else f"{value:g}" if isinstance(value, float) else str(value)
    )
