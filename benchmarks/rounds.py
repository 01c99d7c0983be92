"""Sides of a comparison, measured in turns."""

import time
from collections.abc import Callable, Mapping

import torch

from bertvision.bench_record import Side
from bertvision.progress import SILENT, Progress
from bertvision.training.device import wait_for


def measure_in_turns(
    sides: Mapping[str, Callable[[], object]], rounds: int, device: torch.device, progress: Progress = SILENT
) -> tuple[Side, ...]:
    """Time every side once a round, forwards in one round and backwards in the next; the first round is a warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    with progress.bar("measure", (rounds + 1) * len(sides)) as bar:
        for number in range(rounds + 1):
            for name in list(sides)[:: 1 if number % 2 else -1]:
                taken = _seconds(sides[name], device)
                if number:
                    seconds[name].append(round(taken, 6))
                bar.advance(1, lambda name=name: name)  # type: ignore[misc]
    return tuple(Side(name=name, seconds=tuple(taken)) for name, taken in seconds.items())


def _seconds(side: Callable[[], object], device: torch.device) -> float:
    wait_for(device)
    started = time.perf_counter()
    side()
    wait_for(device)
    return time.perf_counter() - started
