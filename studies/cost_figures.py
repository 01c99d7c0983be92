"""Records of ways of tuning -> figures of the main score against what each costs, every way named beside its point."""

from collections.abc import Callable, Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bertvision.records import RunRecord
from bertvision.report import gallery
from bertvision.report.drawing import (
    INK,
    PALETTE,
    WIDTH,
    Series,
    Style,
    draw_baselines,
    draw_series,
    fraction_label,
    is_study,
    main_measure,
    panels,
    title_of,
)
from bertvision.report.gallery import GALLERY, scale_by_powers, scored_results
from bertvision.report.measures import Measure, measures_of
from bertvision.report.pictures import Draw, Picture
from bertvision.report.results import Result, largest_fraction, trained
from studies.costs import FROZEN, HEADS, INSERTED, OUTPUTS, all_trained, part_of

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
CAPTION = "Where ways of tuning are compared, each is a point at the largest fraction, its name at the right."
HEADS_COUNT = "There a head counts what was trained below it as well."


def score_by_parameters(records: Iterable[RunRecord]) -> Figure | None:
    """Draw the main score against parameters; a head counts what was trained below it, without which it has no score.

    Records that compare no ways of tuning are drawn as in any report.
    """
    records = list(records)
    rows, _ = scored_results(records)
    if not is_study(rows):
        return gallery.score_by_parameters(records)
    models = largest_fraction(trained(rows))
    counts = {row.name: count for row in models if (count := all_trained(row.records[0])) is not None}
    label = "trained parameters, those below a head included"
    if len(counts) < len(models):  # costs were not noted
        counts, label = {row.name: row.parameters for row in models}, "trained parameters, those below a head left out"
    figure, axis = draw_study(rows, label, lambda row: counts[row.name])
    scale_by_powers(axis, list(counts.values()))
    return figure


def score_by_training(records: Iterable[RunRecord]) -> Figure | None:
    """Draw the main score against the seconds of training; None without scores."""
    records = list(records)
    rows, _ = scored_results(records)
    if not is_study(rows):
        return gallery.score_by_training(records)
    return draw_study(rows, "seconds of training", lambda row: row.seconds)[0]


def score_by_inference(records: Iterable[RunRecord]) -> Figure | None:
    """Draw the main score against the seconds of the pass over dev; None without scores."""
    records = list(records)
    rows, _ = scored_results(records)
    if not is_study(rows):
        return gallery.score_by_inference(records)
    return draw_study(rows, "seconds of the pass over dev", lambda row: row.inference_seconds)[0]


FIGURES: dict[str, tuple[Draw, str]] = {
    "score_by_parameters": (score_by_parameters, f" {CAPTION} {HEADS_COUNT}"),
    "score_by_training": (score_by_training, f" {CAPTION}"),
    "score_by_inference": (score_by_inference, f" {CAPTION}"),
}


def study_pictures() -> tuple[Picture, ...]:
    """Return the figures of every report, those of costs drawn as here."""
    return tuple(_drawn_here(picture) for picture in GALLERY)


def _drawn_here(picture: Picture) -> Picture:
    if picture.name not in FIGURES:
        return picture
    figure, more = FIGURES[picture.name]
    return picture._replace(figure=figure, caption=picture.caption + more)


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
