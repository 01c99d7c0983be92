"""What the command line shows: bars while it works, tables when it is done, one line when it fails; shared options."""

import functools
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichBars

from bertvision.cli.faults import DEBUG, describe_bug, exit_code, explain, stopped_by_signals
from bertvision.errors import BertVisionError, needing_torch
from bertvision.files import write_text
from bertvision.progress import SILENT, Bar, Progress, SilentBar
from bertvision.records import RunRecord, merge_variants, tuned_for
from bertvision.report.renderers import markdown_text, to_markdown, to_terminal
from bertvision.report.results import by_experiment
from bertvision.report.score_tables import terminal_table
from bertvision.tables import Cells, Page, Table

Parameters = ParamSpec("Parameters")
SECONDS_BETWEEN_NOTES = 0.5
RESUMABLE = ("quickstart", "run", "finetune", "train_heads", "costs")
STOPPED = "stopped; the same run goes on from its last saving (see finetune.save_every, heads.save_every)"
# What JSON leaves as it is: later control characters, line ends, what turns the direction of text, halves of pairs.
STEERING = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

results = Console(highlight=False, soft_wrap=True)  # standard output: what the user asked for
messages = Console(stderr=True, highlight=False, soft_wrap=True)  # standard error: everything else

Config = Annotated[
    Path, typer.Argument(metavar="CONFIG.yaml", help="An experiment, such as configs/squad2/minilm.yaml.")
]
Out = Annotated[Path | None, typer.Option("--out", help="The run folder. [default: runs/NAME]", show_default=False)]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as heads.epochs=3.")
]
AllowOutside = Annotated[
    bool, typer.Option("--allow-outside", help="Let the model name an encoder anywhere: a path or a hub id.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")]
Json = Annotated[bool, typer.Option("--json", help="Print results as JSON.")]


class TerminalProgress:
    """Draws bars on a terminal; elsewhere (a log file) prints one line per finished piece of work."""

    def __init__(self, *, is_passing: bool = False) -> None:
        self._is_passing = is_passing  # a bar vanishes when its work is done

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Bar]:
        """Open a bar."""
        if not messages.is_terminal:
            started = time.perf_counter()
            yield SilentBar()
            messages.print(f"{what}: {total:,} in {time.perf_counter() - started:.1f} s", markup=False)
            return
        columns = (
            TextColumn("{task.description:<14}"),
            BarColumn(bar_width=18),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}"),
        )
        with RichBars(*columns, console=messages, transient=self._is_passing) as bars:
            yield TerminalBar(bars, bars.add_task(what, total=total, note=""))

    def say(self, message: str) -> None:
        """Print one line."""
        messages.print(message, markup=False)


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


def progress_for(quiet: bool) -> Progress:
    """Choose between bars and silence."""
    return SILENT if quiet else TerminalProgress()


def passing_progress(quiet: bool) -> Progress:
    """Choose bars that vanish for work that often takes no time; nothing where nobody watches."""
    return SILENT if quiet or not messages.is_terminal else TerminalProgress(is_passing=True)


def print_table(table: Table) -> None:
    """Print a table."""
    results.print(to_terminal(table), markup=False, emoji=False)


def print_page(page: Page) -> None:
    """Print an analysis."""
    results.print("\n".join(page.head), markup=False, emoji=False)
    for table in page.tables:
        print_table(table)
    for item in page.items:
        results.print(f"\n{item}", markup=False, emoji=False)


def show_page(page: Page, content: dict[str, Any], out: Path | None, what: str, as_json: bool) -> None:
    """Print an analysis as tables or, its content, as JSON; where a file is given, its tables go there instead."""
    if out is not None:
        write_text(out, page_as_markdown(page))
        messages.print(f"{what}: {out}", markup=False)
    if as_json:
        print_json(content)
    elif out is None:
        print_page(page)


def page_as_markdown(page: Page) -> str:
    """Write an analysis as Markdown."""
    head = "\n".join(f"- {markdown_text(line)}" for line in page.head)
    items = ["## Disagreements\n", "```text\n" + "\n\n".join(page.items) + "\n```\n"] if page.items else []
    return "\n".join(["# Analysis\n", f"{head}\n", *map(_table_as_markdown, page.tables), *items])


def _table_as_markdown(table: Table) -> str:
    return "\n".join([f"## {table.title}\n", to_markdown(table), *([f"{table.note}\n"] if table.note else [])])


def print_json(content: Any) -> None:  # noqa: ANN401 (anything that JSON can hold)
    """Print JSON: letters as they are, escaped where they could steer a terminal or standard output is not UTF-8."""
    text = json.dumps(content, indent=2, ensure_ascii=results.encoding != "utf-8")
    results.print(STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text), markup=False, emoji=False)


def print_records(records: Sequence[RunRecord], as_json: bool) -> None:
    """Print what came out: a table per experiment (of variants one together, each at its best rate), or JSON."""
    if as_json:
        print_json([record.model_dump(mode="json", exclude={"config"}) for record in records])
        return
    for name, group in by_experiment(merge_variants(records)).items():
        _print_experiment(name, group)


def _print_experiment(name: str, records: Sequence[RunRecord]) -> None:
    table = terminal_table(records)
    rows: list[Cells] = []
    for fraction, group in groupby(table.rows, key=lambda row: str(row[0])):
        rows += [(f"[{_tuned_for(fraction)}]",), *(row[1:] for row in group)]
    seeds = len({record.seed for record in records})
    title = f"{name}, mean of {seeds} seeds" if seeds > 1 else name
    print_table(replace(table, title=title, columns=table.columns[1:], rows=tuple(rows)))
    if table.note:
        results.print()


def _tuned_for(fraction: str) -> str:
    known = {"": "baseline", "given": "encoder as given", "0": "encoder untuned"}
    return known[fraction] if fraction in known else f"encoder tuned for {tuned_for(float(fraction))}"


def in_one_line(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Let a command end with one line, whatever happens, and with advice when it is stopped.

    Code 2: bad input, or an ordinary fault such as a full disk; 1: a bug; 130, 143 or 129: SIGINT, SIGTERM or SIGHUP.
    """

    @functools.wraps(command)
    def wrapped(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        # uvicorn ends a server in good order and then dies of the signal, as a service manager expects.
        signals = nullcontext() if command.__name__ == "serve" else stopped_by_signals()
        try:
            with signals, needing_torch():
                command(*args, **kwargs)
        except BertVisionError as error:
            fail(str(error))
        except KeyboardInterrupt as stop:
            messages.print(STOPPED if command.__name__ in RESUMABLE else "stopped", markup=False)
            raise typer.Exit(exit_code(stop)) from None
        except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
            sys.stderr.close()
            raise typer.Exit(0) from None
        except (typer.Exit, typer.Abort):
            raise
        except BaseException as error:
            _end(error)

    return wrapped


def _end(error: BaseException) -> NoReturn:
    """End after what was not foreseen: a fault that a user can do something about, or a bug."""
    if os.environ.get(DEBUG) or isinstance(error, (SystemExit, GeneratorExit)):
        raise error
    if (line := explain(error)) is not None:
        fail(line)
    fail(describe_bug(error), code=1)


def fail(message: str, code: int = 2) -> NoReturn:
    """Say what is wrong and end."""
    messages.print(f"error: {' '.join(message.split())}", markup=False)
    raise typer.Exit(code) from None
