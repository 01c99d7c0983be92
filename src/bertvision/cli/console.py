"""What the command line shows: bars while it works, tables when it is done, one line when it fails; shared options."""

import functools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec

import typer
from rich.console import Console

from bertvision.errors import BertVisionError, needing_torch
from bertvision.files import write_text
from bertvision.progress import SILENT, Progress
from bertvision.report.renderers import markdown_text, to_markdown, to_terminal
from bertvision.tables import Page, Table

Parameters = ParamSpec("Parameters")
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
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")]
Json = Annotated[bool, typer.Option("--json", help="Print results as JSON.")]


def progress_for(quiet: bool) -> Progress:
    """Choose between bars and silence."""
    return SILENT if quiet else _bars()


def passing_progress(quiet: bool) -> Progress:
    """Choose bars that vanish for work that often takes no time; nothing where nobody watches."""
    return SILENT if quiet or not messages.is_terminal else _bars(is_passing=True)


def _bars(*, is_passing: bool = False) -> Progress:
    from bertvision.cli.bars import TerminalProgress  # rich's bars: --help draws none

    return TerminalProgress(is_passing=is_passing)


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


def in_one_line(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Let a command end with one line and code 2 on bad input, and with advice when it is stopped."""

    @functools.wraps(command)
    def wrapped(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            with needing_torch():
                command(*args, **kwargs)
        except BertVisionError as error:
            fail(str(error))
        except KeyboardInterrupt:
            messages.print(
                "stopped; the same run goes on from its last saving (see finetune.save_every, heads.save_every)"
            )
            raise typer.Exit(130) from None
        except PermissionError as error:
            fail(f"{error.filename}: {error.strerror}; choose another folder or change its permissions")
        except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
            sys.stderr.close()
            raise typer.Exit(0) from None

    return wrapped


def fail(message: str) -> NoReturn:
    """Say what is wrong and end."""
    messages.print(f"error: {' '.join(message.split())}", markup=False)
    raise typer.Exit(2)
