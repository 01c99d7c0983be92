"""The record of a search -> a table of its best trials, and a figure: what matters, and how the score rose."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bertvision.files import write_bytes, write_text
from bertvision.records import SearchRecord, SearchTrial
from bertvision.report.drawing import INK, PALETTE, WIDTH, house_look, to_png, to_svg
from bertvision.report.pictures import for_file
from bertvision.report.rates import rate_text
from bertvision.tables import Cell, Column, Number, Table

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
    axis.plot(*_points(complete), color=PALETTE[0], marker="o", linestyle="", markersize=4, label="complete")
    if pruned:
        hollow: dict[str, Any] = {"markerfacecolor": "none", "markersize": 4}
        axis.plot(*_points(pruned), color=PALETTE[1], marker="o", linestyle="", label="pruned", **hollow)
    best = [max(trial.score or 0.0 for trial in complete[: place + 1]) for place in range(len(complete))]
    axis.step([trial.number for trial in complete], best, where="post", color=INK, linewidth=1.2, label="best so far")
    axis.set_title(f"Held-out {record.metric} of every trial", loc="left")
    axis.set_xlabel("trial")


def _points(trials: Iterable[SearchTrial]) -> tuple[list[int], list[float]]:
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
