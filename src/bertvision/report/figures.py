"""Records of one experiment -> figures of its training; a figure whose records are missing is None."""

from collections.abc import Callable, Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bertvision.records import RunRecord
from bertvision.report.drawing import INK
from bertvision.report.measures import Measure, measures_of
from bertvision.report.plots import (
    MARKERS,
    Series,
    Style,
    cycled,
    draw_baselines,
    draw_series,
    few_models,
    fraction_label,
    main_measure,
    panels,
    row_styles,
    title_of,
    title_of_few,
)
from bertvision.report.rows import Row, full_rows, largest_fraction, table_rows, trained

EARLY, LATE = "#0072B2", "#D55E00"
UNIFORM_STYLE = Style(INK, "", "--")
SPAN = "best_span_HasAns_f1"
POOLED_AT = -2.0  # apart from the layers
TITLES = {SPAN: "F1 of the best span"}


def finetuning_curve(records: Iterable[RunRecord]) -> Figure | None:
    """Draw scores against the fraction of an epoch that the encoder was tuned for; None below two fractions."""
    every = full_rows(records)
    rows = few_models(every)
    found = {measure: curves for measure in _curve_measures(rows) if (curves := _curves(rows, measure, _fraction))}
    if len({place for curves in found.values() for series in curves for place in series.x}) < 2:
        return None
    figure, axes = panels(len(found), row_styles(rows))
    for axis, (measure, curves) in zip(axes, found.items(), strict=True):
        axis.set_title(title_of_few(every, rows, TITLES.get(measure.key, title_of(measure))), loc="left")
        _draw_curves(axis, curves, rows, measure)
    axes[-1].set_xlabel("fraction of an epoch the encoder was tuned for")
    return figure


def less_data_curve(records: Iterable[RunRecord]) -> Figure | None:
    """Draw the main score against the share of the data that heads were trained on; None below two shares."""
    rows = largest_fraction(trained(table_rows(records)))
    if len({row.data for row in rows}) < 2:
        return None
    measure = main_measure(rows)
    figure, (axis,) = panels(1, row_styles(rows))
    _draw_curves(axis, _curves(rows, measure, lambda row: 100 * row.data), rows, measure)
    axis.set_title(f"{title_of(measure)}, {fraction_label(rows[0])}", loc="left")
    axis.set_xlabel("percent of the data that heads were trained on")
    return figure


def layer_weights(records: Iterable[RunRecord]) -> Figure | None:
    """Draw how much each head weighs each layer, a panel per head and a line per fraction; None without such heads."""
    rows = [row for row in full_rows(records) if row.layer_weights]
    if not rows:
        return None
    styles = _fraction_styles(rows)
    names = list(dict.fromkeys(row.name for row in rows))
    figure, axes = panels(len(names), {**styles, "uniform": UNIFORM_STYLE})
    for axis, name in zip(axes, names, strict=True):
        _draw_weights(axis, name, [row for row in rows if row.name == name], styles)
    axes[-1].set_xlabel("layer (0: embeddings)")
    states = [state for row in rows for state in row.weighed_states]
    if "pooled" in states:
        _mark_pooled(axes[-1], 1 + max(state for state in states if isinstance(state, int)))
    return figure


def _curve_measures(rows: Sequence[Row]) -> list[Measure]:
    measures = measures_of([row.records[0] for row in rows])
    return [measures.main_measure, *(each for each in measures.columns if each.key == SPAN)]


def _fraction(row: Row) -> float:
    return row.place


def _curves(rows: Sequence[Row], measure: Measure, place_of: Callable[[Row], float]) -> list[Series]:
    curves: dict[str, Series] = {}
    styles = row_styles(rows)
    for row in trained(rows):
        if (score := row.scores.get(measure.key)) is not None:
            curve = curves.setdefault(row.name, Series(row.name, styles[row.name], [], []))
            curve.x.append(place_of(row))
            curve.y.append(score)
    return list(curves.values())


def _draw_curves(axis: Axes, curves: Sequence[Series], rows: Sequence[Row], measure: Measure) -> None:
    for series in curves:
        draw_series(axis, series)
    draw_baselines(axis, rows, measure.key)


def _fraction_styles(rows: Sequence[Row]) -> dict[str, Style]:
    places = sorted({row.place for row in rows})
    return {
        f"fraction {place:g}": Style(_between(number / max(1, len(places) - 1)), cycled(MARKERS, number), "-")
        for number, place in enumerate(places)
    }


def _between(share: float) -> str:
    pairs = zip(to_rgb(EARLY), to_rgb(LATE), strict=True)
    red, green, blue = (early + share * (late - early) for early, late in pairs)
    return to_hex((red, green, blue))


def _draw_weights(axis: Axes, name: str, rows: Sequence[Row], styles: dict[str, Style]) -> None:
    for row in rows:
        weights = dict(zip(row.weighed_states, row.layer_weights or (), strict=True))
        label = f"fraction {row.place:g}"
        if (pooled := weights.pop("pooled", None)) is not None:
            draw_series(axis, Series(label, styles[label], [POOLED_AT], [pooled]))
        draw_series(axis, Series(label, styles[label], list(map(float, weights)), list(weights.values())))
    for layers in {len(row.layer_weights or ()) for row in rows}:
        axis.axhline(1 / layers, color=INK, linestyle="--", linewidth=1)
    axis.set_title(name, loc="left")
    axis.set_ylabel("weight")
    axis.set_ylim(bottom=0)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _mark_pooled(axis: Axes, layers: int) -> None:
    shown = range(0, layers, 1 + layers // 14)
    axis.set_xticks([POOLED_AT, *shown], ["pooled", *map(str, shown)])
    axis.set_xlabel("layer (0: embeddings), and the pooler's output")
