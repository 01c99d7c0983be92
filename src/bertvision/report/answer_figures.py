"""Records of one experiment -> figures of its answers; one whose records are missing is None."""

from collections.abc import Callable, Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from bertvision.records import Curves, RunRecord, is_best_silent
from bertvision.report.drawing import (
    INK,
    PALETTE,
    Style,
    fraction_label,
    main_measure,
    panels,
    row_styles,
    title_of,
)
from bertvision.report.headline import best_result
from bertvision.report.results import Result, full_results, largest_fraction, trained

TYPES = (("HasAns_f1", "has an answer", PALETTE[0]), ("NoAns_f1", "has none", PALETTE[1]))
SLOT_HEIGHT = 0.5  # inches for a name and two bars
BEST_THRESHOLD = "best_f1_thresh"
# Thresholds marked on a row's curve: the keys of place and score, and how the mark looks.
TUNED_MARK, BEST_MARK = Style(INK, "D", ""), Style(INK, "v", "")
MARKS = (("tuned_threshold", "tuned_f1", TUNED_MARK), (BEST_THRESHOLD, "best_f1", BEST_MARK))
DASHED = Style(INK, "", "--")
STAGES = {"before": "Before calibration", "after": "After calibration"}
EQUAL = Style(INK, "", "--")
LARGE = 10_000  # numbers from which on axes have 500k in place of 500000


def question_types(records: Iterable[RunRecord]) -> Figure | None:
    """Draw F1 by whether questions have an answer, a pair of bars per model; None without such scores."""
    rows = [row for row in full_results(records) if all(key in row.scores for key, _, _ in TYPES)]
    models = largest_fraction(trained(rows))
    if not models:
        return None
    legend = {label: Style(color, "s", "") for _, label, color in TYPES}
    figure, (axis,) = panels(1, legend, height=max(1.5, SLOT_HEIGHT * len(models) + 0.6))
    for slot, row in enumerate(models):
        _draw_bars(axis, slot, row)
    axis.set_ylim(len(models) - 0.45, -0.55)
    axis.set_xlim(0, 100)
    axis.tick_params(axis="y", left=False, labelleft=False)
    axis.grid(visible=False, axis="y")
    axis.set_title(f"{title_of(main_measure(models))}, {fraction_label(models[0])}", loc="left")
    axis.set_xlabel("F1")
    return figure


def threshold_curve(records: Iterable[RunRecord]) -> Figure | None:
    """Draw F1 against the threshold for “no answer”, with 0, tuned and best marked; None without such curves."""
    rows = _with_points(records, lambda curves: bool(curves.threshold))
    if not rows:
        return None
    styles = _line_styles(rows)
    marks = {"tuned on held-out": TUNED_MARK, "best": BEST_MARK, "at 0": DASHED}
    figure, (axis,) = panels(1, {**styles, **marks}, height=3.2)
    for row in rows:
        points = _points(row).threshold
        _draw_line(axis, [point[0] for point in points], [point[2] for point in points], styles[row.name])
        _draw_marks(axis, row.records[0], styles[row.name])
    axis.axvline(0, color=DASHED.color, linestyle=DASHED.line, linewidth=1)
    axis.set_title(f"F1, {fraction_label(rows[0])}", loc="left")
    axis.set_xlabel("threshold for “no answer”")
    return figure


def reliability(records: Iterable[RunRecord]) -> Figure | None:
    """Draw how often answers are right by how probable they are, before and after; None without such curves."""
    rows = _with_points(records, lambda curves: any(curves.reliability.values()))
    if not rows:
        return None
    styles = _line_styles(rows)
    stages = [stage for stage in STAGES if any(_points(row).reliability.get(stage) for row in rows)]
    figure, axes = panels(len(stages), {**styles, "as often right as probable": DASHED})
    for axis, stage in zip(axes, stages, strict=True):
        for row in rows:
            bins = [each for each in _points(row).reliability.get(stage, []) if each[2]]
            _draw_line(axis, [each[0] for each in bins], [each[1] for each in bins], styles[row.name], marker=".")
        axis.plot([0, 1], [0, 1], color=DASHED.color, linestyle=DASHED.line, linewidth=1)
        axis.set_title(f"{STAGES[stage]}, {fraction_label(rows[0])}", loc="left")
        axis.set_ylabel("share right")
    axes[-1].set_xlabel("probability of the answer")
    return figure


def risk_coverage(records: Iterable[RunRecord]) -> Figure | None:
    """Draw the share of wrong answers against the share answered, the surest first; None without such curves."""
    rows = _with_points(records, lambda curves: bool(curves.risk_coverage))
    if not rows:
        return None
    styles = _line_styles(rows)
    figure, (axis,) = panels(1, styles)
    for row in rows:
        points = _points(row).risk_coverage
        _draw_line(axis, [point[0] for point in points], [point[1] for point in points], styles[row.name])
    axis.set_title(f"Share wrong, {fraction_label(rows[0])}", loc="left")
    axis.set_xlabel("share answered, the most probable first")
    axis.set_xlim(0, 1)
    axis.set_ylim(bottom=0)
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


def _with_points(records: Iterable[RunRecord], has: Callable[[Curves], bool]) -> list[Result]:
    """Keep, at the largest fraction, the encoder and as many of the best models as there are colours."""
    rows = largest_fraction([row for row in trained(full_results(records)) if has(_points(row))])
    key = main_measure(rows).key if rows else ""
    others = [row for row in rows if row.kind != "encoder"]
    best = sorted(others, key=lambda row: -row.scores[key].mean if key in row.scores else 0.0)[: len(PALETTE)]
    return [row for row in rows if row.kind == "encoder" or row in best]


def _points(row: Result) -> Curves:
    """Return the curves of a row's first seed: those of several have their points at different places."""
    return row.records[0].curves or Curves()


def _line_styles(rows: Sequence[Result]) -> dict[str, Style]:
    return {name: style._replace(marker="") for name, style in row_styles(rows).items()}


def _draw_bars(axis: Axes, slot: int, row: Result) -> None:
    for number, (key, _, color) in enumerate(TYPES):
        score = row.scores[key]
        axis.barh(slot + 0.27 * number, score.mean, height=0.25, color=color, xerr=score.deviation, ecolor=INK)
    axis.text(0.6, slot - 0.17, row.name, va="bottom", fontsize=9)


def _draw_line(axis: Axes, x: Sequence[float], y: Sequence[float], style: Style, marker: str = "") -> None:
    axis.plot(x, y, color=style.color, linestyle=style.line, marker=marker)


def _lowest_threshold(record: RunRecord) -> float:
    """Return where the curve begins, which is as near to "below all odds" as the axis goes."""
    assert record.curves is not None
    return record.curves.threshold[0][0]


def _draw_marks(axis: Axes, record: RunRecord, style: Style) -> None:
    for place, score, mark in MARKS:
        if place in record.scores and score in record.scores:
            threshold = record.scores[place]
            if place == BEST_THRESHOLD and is_best_silent(record):
                threshold = _lowest_threshold(record)
            axis.plot([threshold], [record.scores[score]], color=style.color, marker=mark.marker)
