"""Bars on the terminal while the verbs work."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichBars

from bertvision.cli.console import harmless, messages
from bertvision.progress import Bar

SECONDS_BETWEEN_NOTES = 0.5
SHORT = 1.0  # seconds: shorter work leaves no line, lest dozens of quick epochs bury the results
SECONDS_BETWEEN_LINES = 60.0  # of a log file, on work that is not done
LONGEST_SILENCE = 10.0  # seconds without a line in a log file, after which short work has one too


class TerminalProgress:
    """Draws bars on a terminal; elsewhere (a log file) prints a line per piece of work that was not short."""

    def __init__(self, *, is_passing: bool = False) -> None:
        self._is_passing = is_passing  # a bar vanishes when its work is done
        self._printed = time.perf_counter()

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Bar]:
        """Open a bar."""
        started = time.perf_counter()
        if not messages.is_terminal:
            yield LogBar(what, total)
            self._print_finished(f"{what}: {total:,}", started)
            return
        columns = (
            TextColumn("{task.description:<14}", markup=False),
            BarColumn(bar_width=18),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}", markup=False),
        )
        with RichBars(*columns, console=messages, transient=self._is_passing) as bars:
            yield TerminalBar(bars, bars.add_task(harmless(what), total=total, note=""))
            bars.live.transient = self._is_passing or time.perf_counter() - started < SHORT

    def _print_finished(self, what: str, started: float) -> None:
        now = time.perf_counter()
        if now - started >= SHORT or now - self._printed >= LONGEST_SILENCE:
            messages.print(f"{what} in {now - started:.1f} s", markup=False)
            self._printed = now

    def say(self, message: str) -> None:
        """Print one line."""
        messages.print(message, markup=False)


class LogBar:
    """A bar of a log file: a line now and then says how far long work is, and what is left."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._done = what, total, 0
        self._started = self._printed = time.perf_counter()

    def advance(self, amount: int, note: Callable[[], str] | None = None) -> None:
        """Count, and print a line where the last one is long ago."""
        self._done += amount
        now = time.perf_counter()
        if now - self._printed < SECONDS_BETWEEN_LINES or not 0 < self._done < self._total:
            return
        self._printed, share = now, self._done / self._total
        left = (now - self._started) * (1 / share - 1)
        noted = "" if note is None else f"; {note()}"
        messages.print(f"{self._what}: {share:.0%}, about {left / 60:.0f} min left{noted}", markup=False)


class TerminalBar:
    """One bar of a terminal."""

    def __init__(self, bars: RichBars, task: TaskID) -> None:
        self._bars, self._task, self._noted = bars, task, -SECONDS_BETWEEN_NOTES

    def advance(self, amount: int, note: Callable[[], str] | None = None) -> None:
        """Move the bar; a new note costs work, on a GPU even a wait, so it is asked for once in a while."""
        self._bars.update(self._task, advance=amount)
        if note is not None and time.perf_counter() - self._noted > SECONDS_BETWEEN_NOTES:
            self._bars.update(self._task, note=note())
            self._noted = time.perf_counter()
