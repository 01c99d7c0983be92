"""What the command line shows: bars while it works, tables when it is done, one line when it fails; shared options."""

import errno
import functools
import inspect
import json
import os
import re
import shlex
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec

import typer
from rich.console import Console

from bertvision.errors import BertVisionError, is_out_of_memory, is_panic, needing_torch, reason_of
from bertvision.progress import SILENT, Bar, Progress
from bertvision.report.renderers import to_terminal
from bertvision.tables import Page, Table

if TYPE_CHECKING:
    from rich.progress import Progress as RichBars
    from rich.progress import TaskID

    from bertvision.records import RunRecord

Parameters = ParamSpec("Parameters")
RESUMABLE = ("quickstart", "run", "pretrain", "search")
STOPPED = "the same run goes on from its last saving (see save_every)"
# All but tabs and line ends: control characters, line ends of Unicode, what turns the direction of text, half pairs.
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

# A parameter or a setting as messages of the library quote it: `gold`, `allow_outside=True`, `heads.epochs=3`.
QUOTED = re.compile(r"(?<!column )(?<!key )`([a-z_][a-z_0-9.]*)(?:=([^`]*))?`")
SECONDS_BETWEEN_NOTES = 0.5
SHORT = 1.0  # seconds: shorter work leaves no line, lest dozens of quick epochs bury the results
SECONDS_BETWEEN_LINES = 60.0  # of a log file, on work that is not done
LONGEST_SILENCE = 10.0  # seconds without a line in a log file, after which short work has one too
DEBUG = "BERTVISION_DEBUG"  # in the environment: show tracebacks
ISSUES = "please report it, with that file"
CURES = {
    errno.ENOSPC: "free some space, or choose a folder on another disk; then give the same command again",
    errno.EDQUOT: "free some of your quota, or choose a folder on another disk; then give the same command again",
    errno.EROFS: "choose a folder that can be written to",
    errno.EACCES: "choose another folder or change its permissions",
    errno.EPERM: "choose another folder or change its permissions",
    errno.ENOENT: "it is gone, or was never there: put it back, or run the command that makes it",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EIO: "the disk fails; copy what you need to another one",
}
NO_MEMORY = "choose smaller batches (such as --set finetune.batch.tokens=2048), a smaller encoder, or a larger machine"
# What torch says, in a RuntimeError, of tensors that do not fit each other.
ODD_SIZES = re.compile(
    r"size mismatch|sizes? of tensor|shapes cannot be multiplied|invalid for input of size", re.IGNORECASE
)
LIBRARIES = (
    "tokenizers",
    "onnxruntime",
    "safetensors",
    "pyarrow",
    "torch",
    "transformers",
    "huggingface_hub",
    "datasets",
)


def is_main() -> bool:
    """Return whether this process shows anything: of those that share a run, the first one does."""
    return int(os.environ.get("WORLD_SIZE", "1")) == 1 or os.environ.get("RANK", "0") == "0"


def harmless(text: str) -> str:
    """Escape what could steer a terminal, as JSON would: texts, labels and names of files come from strangers."""
    return UNSEEN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


class Terminal(Console):
    """A console whose texts are all harmless."""

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401 (as rich's own)
        """Print objects; texts are no markup of rich's unless that is asked for."""
        shown = (harmless(each) if isinstance(each, str) else each for each in objects)
        super().print(*shown, **{"markup": False, **options})


# What the user asked for goes to standard output, all else to standard error; `sample:train:` is no emoji.
results = Terminal(highlight=False, emoji=False, soft_wrap=True, quiet=not is_main())
messages = Terminal(stderr=True, highlight=False, emoji=False, soft_wrap=True, quiet=not is_main())

Config = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="An experiment: my.yaml, or a name of `show experiments`.")
]
Out = Annotated[Path | None, typer.Option("--out", help="The run folder. [default: runs/NAME]", show_default=False)]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as heads.epochs=3.")
]
MODEL = (
    "default, base, OUT (its best), OUT/heads/FRACTION/HEAD, OUT/encoder/FRACTION, a saved model, checkpoint, hub id."
)
AllowOutside = Annotated[
    bool, typer.Option("--allow-outside", help="Let the model name an encoder anywhere: a path or a hub id.")
]
ProcessCount = Annotated[
    int | None,
    typer.Option("--processes", metavar="N", min=1, help="Processes on this machine that share the work, one a GPU."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, notes or warnings.")]
Json = Annotated[bool, typer.Option("--json", help="Print results as JSON.")]


def settings_of(overrides: Sequence[str] | None) -> dict[str, Any]:
    """Return what `--set` says."""
    from bertvision.settings import with_overrides  # pydantic: --help needs none

    return with_overrides({}, overrides or ())


def progress_for(quiet: bool) -> Progress:
    """Choose between bars and silence."""
    return SILENT if quiet or not is_main() else _bars()


def is_done_by_several(count: int | None) -> bool:
    """Start this very command as several processes where that is asked for; return whether they have done it."""
    if count in (None, 1) or "WORLD_SIZE" in os.environ:
        return False
    from bertvision.training.distributed import launch

    assert count is not None
    if code := launch(count, [sys.executable, "-m", "bertvision", *sys.argv[1:]]):
        raise typer.Exit(code)
    return True


def passing_progress(quiet: bool) -> Progress:
    """Choose bars that vanish for work that often takes no time; nothing where nobody watches."""
    return SILENT if quiet or not messages.is_terminal else _bars(is_passing=True)


def _bars(*, is_passing: bool = False) -> Progress:
    return TerminalProgress(is_passing=is_passing)


def print_table(table: Table) -> None:
    """Print a table."""
    results.print(to_terminal(table), markup=False, emoji=False)


def print_tables(tables: Sequence[Table]) -> None:
    """Print tables below each other, a blank line between two whether or not they have notes."""
    for table in tables:
        results.print(to_terminal(table).rstrip("\n"), markup=False, emoji=False)


def print_records(records: Sequence["RunRecord"], as_json: bool) -> None:
    """Print what came out: a table per experiment, or JSON."""
    from bertvision.report.tables import terminal_tables

    if as_json:
        print_json([record.model_dump(mode="json", exclude={"config"}) for record in records])
        return
    for table in terminal_tables(records):
        print_table(table)
        if table.note:
            results.print()


def print_page(page: Page) -> None:
    """Print an analysis."""
    results.print("\n".join(page.head), markup=False, emoji=False)
    print_tables(page.tables)
    for item in page.items:
        results.print(f"\n{item}", markup=False, emoji=False)


def show_analysis(page: Page, content: Mapping[str, Any], as_json: bool) -> None:
    """Print an analysis as tables or, its content, as JSON."""
    if as_json:
        print_json(content)
    else:
        print_page(page)


def print_json(content: Any) -> None:  # noqa: ANN401 (anything that JSON can hold)
    """Print JSON: letters as they are, escaped where they could steer a terminal or standard output is not UTF-8."""
    text = json.dumps(content, indent=2, ensure_ascii=results.encoding != "utf-8")
    results.print(text)


def print_csv(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print lines of a table as CSV in UTF-8, byte for byte; to a terminal without what could steer it."""
    from bertvision.predictions.files import to_csv

    text = to_csv(lines)
    typer.echo((harmless(text) if results.is_terminal else text).encode(), nl=False)


def in_one_line(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Let a command end with one line, whatever happens, and with advice when it is stopped.

    Code 2: bad input, or an ordinary fault such as a full disk; 1: a bug; 130, 143 or 129: SIGINT, SIGTERM or SIGHUP.
    """

    @functools.wraps(command)
    def _guarded(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        # uvicorn ends a server in good order and then dies of the signal, as a service manager expects.
        signals = nullcontext() if command.__name__ == "serve" else stopped_by_signals()
        try:
            with signals, needing_torch():
                command(*args, **kwargs)
        except BertVisionError as error:
            fail(with_flags(str(error), flags_of(command)))
        except KeyboardInterrupt as stop:
            how_to_go_on = getattr(stop, "__notes__", [STOPPED] if command.__name__ in RESUMABLE else [])
            messages.print("; ".join(["stopped", *how_to_go_on]), markup=False)
            raise typer.Exit(exit_code(stop)) from None
        except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
            sys.stderr.close()
            raise typer.Exit(0) from None
        except (typer.Exit, typer.Abort):
            raise
        except BaseException as error:
            _end(error)

    return _guarded


def _end(error: BaseException) -> NoReturn:
    """End after what was not foreseen: a fault that a user can do something about, or a bug."""
    if os.environ.get(DEBUG) or isinstance(error, (SystemExit, GeneratorExit)):
        raise error
    if (line := explain(error)) is not None:
        fail(line)
    fail(describe_bug(error), code=1)


def flags_of(command: Callable[..., None]) -> dict[str, str]:
    """Return how a command's options are written on the command line, by the names of its parameters."""
    options: dict[str, str] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        for info in getattr(parameter.annotation, "__metadata__", ()):
            # Inside Annotated typer takes an option's first name for its default, and sorts it out later.
            if isinstance(info.default, str) and info.default.startswith("--"):
                options[name] = info.default
    return options


def with_flags(message: str, flags: Mapping[str, str]) -> str:
    """Write the parameters and settings that a message of the library quotes as the command line takes them."""

    def flag(quoted: re.Match[str]) -> str:
        name, value = quoted.groups()
        if name in flags:
            return flags[name] if value in (None, "True") else f"{flags[name]} {shlex.quote(value)}"
        if value is not None and "overrides" in flags:
            return f"--set {shlex.quote(f'{name}={value}')}"
        return quoted[0]

    return QUOTED.sub(flag, message)


def fail(message: str, code: int = 2) -> NoReturn:
    """Say what is wrong and end; a bug is told by whichever process has it."""
    if code == 1 and not is_main():
        typer.echo(f"error: {harmless(' '.join(message.split()))}", err=True)
    messages.print(f"error: {' '.join(message.split())}")
    raise typer.Exit(code) from None


class StoppedError(KeyboardInterrupt):
    """A signal that asks the process to end, raised where an interrupt of the keyboard would be."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as SIGINT does; one that is ignored (nohup) stays so."""
    numbers = [each for name in ("SIGTERM", "SIGHUP") if (each := getattr(signal, name, None)) is not None]
    if threading.current_thread() is not threading.main_thread():
        numbers = []  # Python sets handlers there alone
    default = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in default:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number in default:
            signal.signal(number, signal.SIG_DFL)


def _stop(number: int, frame: FrameType | None) -> None:
    raise StoppedError(number)


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Return what a shell gives for a process that such a signal ended."""
    return 128 + (interrupt.number if isinstance(interrupt, StoppedError) else signal.SIGINT)


def explain(error: BaseException) -> str | None:
    """Return what is wrong and what to do, in one line; None for a bug of ours."""
    if is_out_of_memory(error):
        return f"out of memory ({reason_of(error) or type(error).__name__}); {NO_MEMORY}"
    if (number := _errno_of(error)) is not None:
        name = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        cure = f"; {CURES[number]}" if number in CURES else ""
        return f"{name}{os.strerror(number)}{cure}"
    if isinstance(error, OSError):
        return reason_of(error) or type(error).__name__
    if isinstance(error, RuntimeError) and ODD_SIZES.search(str(error)):
        return f"a tensor has another size than expected ({reason_of(error)}); are all files of the folder of one run?"
    if (library := _library_of(error)) is not None:
        return f"{library} failed: {reason_of(error) or type(error).__name__}"
    return None


def describe_bug(error: BaseException) -> str:
    """Keep a bug's traceback in a file, and return the line that names it."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="bertvision-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
    ) as file:
        file.write("".join(traceback.format_exception(error)))
    what = f"{type(error).__name__}: {reason_of(error)}"
    return f"this is a bug of bertvision ({what}); the traceback is in {file.name}; {ISSUES} ({DEBUG}=1 shows it)"


def _errno_of(error: BaseException) -> int | None:
    if isinstance(error, OSError) and error.errno in errno.errorcode:
        return error.errno
    # Libraries in Rust write it into their message.
    found = re.search(r"\(os error (\d+)\)", str(error)) if _library_of(error) is not None else None
    return int(found[1]) if found is not None else None


def _library_of(error: BaseException) -> str | None:
    """Name the library that an exception is of; tokenizers raises plain ones, which nobody else does."""
    if type(error) is Exception or is_panic(error):
        return "tokenizers"
    root = type(error).__module__.partition(".")[0].removesuffix("_rust")
    return root if root in LIBRARIES else None


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
        # Imported here: --help draws no bars.
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichBars

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
        messages.print(with_flags(message, {"overrides": "--set"}), markup=False)


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

    def __init__(self, bars: "RichBars", task: "TaskID") -> None:
        self._bars, self._task, self._noted = bars, task, -SECONDS_BETWEEN_NOTES

    def advance(self, amount: int, note: Callable[[], str] | None = None) -> None:
        """Move the bar; a new note costs work, on a GPU even a wait, so it is asked for once in a while."""
        self._bars.update(self._task, advance=amount)
        if note is not None and time.perf_counter() - self._noted > SECONDS_BETWEEN_NOTES:
            self._bars.update(self._task, note=note())
            self._noted = time.perf_counter()
