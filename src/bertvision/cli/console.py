"""What the command line shows: bars while it works, tables when it is done, one line when it fails; shared options."""

import functools
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, ParamSpec

import typer
from rich.console import Console

from bertvision.cli.faults import DEBUG, describe_bug, exit_code, explain, stopped_by_signals
from bertvision.errors import BertVisionError, needing_torch
from bertvision.files import write_text
from bertvision.progress import SILENT, Progress
from bertvision.report.renderers import markdown_text, to_markdown, to_terminal
from bertvision.tables import Page, Table

if TYPE_CHECKING:
    from bertvision.records import RunRecord

Parameters = ParamSpec("Parameters")
RESUMABLE = ("quickstart", "run", "finetune", "train_heads", "pretrain", "search")
STOPPED = "the same run goes on from its last saving (see save_every)"
# All but tabs and line ends: control characters, line ends of Unicode, what turns the direction of text, half pairs.
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


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
    Path, typer.Argument(metavar="CONFIG", help="An experiment: my.yaml, or a name of `bertvision configs`.")
]
Out = Annotated[Path | None, typer.Option("--out", help="The run folder. [default: runs/NAME]", show_default=False)]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as heads.epochs=3.")
]
ReportTo = Annotated[
    list[str] | None,
    typer.Option("--report-to", metavar="TRACKER", help="Show training in tensorboard, trackio or wandb."),
]
MODEL = (
    "default, base, OUT (its best), OUT/heads/FRACTION/HEAD, OUT/encoder/FRACTION, a saved model, checkpoint, hub id."
)
AllowOutside = Annotated[
    bool, typer.Option("--allow-outside", help="Let the model name an encoder anywhere: a path or a hub id.")
]
ComputePrecision = Annotated[
    Literal["auto", "float32", "bf16"],
    typer.Option("--precision", help="bf16 is faster on a CPU with AVX512-BF16 or AMX; auto takes it on a GPU alone."),
]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="The same bits in every run on the same device; slower on a GPU.")
]
ProcessCount = Annotated[
    int | None,
    typer.Option("--processes", metavar="N", min=1, help="Processes on this machine that share the work, one a GPU."),
]
MarkdownFile = Annotated[
    Path | None, typer.Option("--out", metavar="FILE.md", help="Write Markdown there instead of printing.")
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
    from bertvision.training.processes import launch

    assert count is not None
    if code := launch(count, [sys.executable, "-m", "bertvision", *sys.argv[1:]]):
        raise typer.Exit(code)
    return True


def passing_progress(quiet: bool) -> Progress:
    """Choose bars that vanish for work that often takes no time; nothing where nobody watches."""
    return SILENT if quiet or not messages.is_terminal else _bars(is_passing=True)


def _bars(*, is_passing: bool = False) -> Progress:
    from bertvision.cli.bars import TerminalProgress  # rich's bars: --help draws none

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
    from bertvision.report.score_tables import terminal_tables

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
    def wrapped(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        # uvicorn ends a server in good order and then dies of the signal, as a service manager expects.
        signals = nullcontext() if command.__name__ == "serve" else stopped_by_signals()
        try:
            with signals, needing_torch():
                command(*args, **kwargs)
        except BertVisionError as error:
            fail(str(error))
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

    return wrapped


def _end(error: BaseException) -> NoReturn:
    """End after what was not foreseen: a fault that a user can do something about, or a bug."""
    if os.environ.get(DEBUG) or isinstance(error, (SystemExit, GeneratorExit)):
        raise error
    if (line := explain(error)) is not None:
        fail(line)
    fail(describe_bug(error), code=1)


def fail(message: str, code: int = 2) -> NoReturn:
    """Say what is wrong and end; a bug is told by whichever process has it."""
    if code == 1 and not is_main():
        typer.echo(f"error: {harmless(' '.join(message.split()))}", err=True)
    messages.print(f"error: {' '.join(message.split())}")
    raise typer.Exit(code) from None
