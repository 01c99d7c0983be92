"""Benchmarks' records -> figures: how costs grow, on logarithmic axes, where a power law is a straight line."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bertvision.files import write_bytes
from bertvision.records import BenchRecord
from bertvision.report.drawing import PALETTE, house_look, to_png

COLUMNS = {"seconds": PALETTE[0], "GB at most": PALETTE[1]}
TICKS = [digit * 10.0**power for power in range(-6, 7) for digit in (1, 2, 5)]


def write_bench_figure(path: Path, record: BenchRecord) -> Path:
    """Draw a record as a PNG beside its file."""
    with house_look():
        write_bytes(path.with_suffix(".png"), to_png(growth_figure(record)))
    return path.with_suffix(".png")


def growth_figure(record: BenchRecord) -> Figure:
    """Draw time and memory against each of the sizes that `settings.axes` lists."""
    axes: dict[str, list[float]] = record.settings["axes"]
    figure = Figure(figsize=(7.0, 2.1 * len(axes)), layout="constrained")
    panels = figure.subplots(len(axes), len(COLUMNS), squeeze=False)
    seconds = {side.name: median(side.seconds) for side in record.sides}
    for (axis, sizes), row in zip(axes.items(), panels, strict=True):
        names = [f"{axis} {size}" for size in sizes]
        _draw(row[0], axis, sizes, [seconds[name] for name in names], "seconds")
        _draw(row[1], axis, sizes, [record.figures[f"{name}: GB at most"] for name in names], "GB at most")
    return figure


def _draw(panel: Axes, axis: str, sizes: Sequence[float], costs: Sequence[float], what: str) -> None:
    slope, start = np.polyfit(np.log(sizes), np.log(costs), 1)
    panel.loglog(sizes, costs, color=COLUMNS[what], marker="o", linestyle="")
    panel.loglog(sizes, np.exp(start) * np.asarray(sizes) ** slope, color=COLUMNS[what], linestyle="--")
    panel.set_title(f"{what}, exponent {slope:.2f}", loc="left")
    panel.set_xlabel(axis)
    panel.set_xticks(sizes, [_short(size) for size in sizes])
    low, high = _decent_range(costs)
    panel.set_ylim(low, high)
    ticks = [value for value in TICKS if low <= value <= high]
    panel.set_yticks(ticks, [f"{value:g}" for value in ticks])
    panel.minorticks_off()


def _short(size: float) -> str:
    """Write a size so that five of them fit below a panel."""
    return f"{size / 1000:.0f}k" if size >= 2000 else f"{size:g}"


def _decent_range(costs: Sequence[float]) -> tuple[float, float]:
    """Return bounds that hold all costs and are a factor of 8 apart at least, so that next to nothing looks like it."""
    middle = float(np.sqrt(min(costs) * max(costs)))
    reach = max(8**0.5, 1.3 * (max(costs) / min(costs)) ** 0.5)
    return middle / reach, middle * reach
