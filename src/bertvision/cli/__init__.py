"""`bertvision`: parse, call one function of the stages, print; one verb per stage.

Everything heavy is imported inside the verbs, so that `--help` is quick and `score` and `report` need no torch; what
needs transformers after the settings are checked, so that a wrong key is refused at once.
"""

from itertools import groupby
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import bertvision
from bertvision.cli.console import fail, results
from bertvision.cli.data import encode, show
from bertvision.cli.evaluate import analyze, calibrate, compare, ensemble, report, score
from bertvision.cli.serve import save, serve
from bertvision.cli.train import pretrain, quickstart, run, search
from bertvision.cli.use import ask, predict

# In the order in which --help lists them.
VERBS_BY_PANEL = {
    "Use a model": (ask, predict, serve, save),
    "Train": (quickstart, run, search, pretrain, encode, show),
    "Evaluate": (score, compare, analyze, calibrate, ensemble, report),
}
OLD_VERBS = {
    "compare-methods": "is now `compare --variants`",
    "configs": "is now `show experiments`",
    "costs": "is now `make bench NAME=costs`, in the repository",
    "export": "is now `save --onnx`",
    "finetune": "is now `run --until encoder`",
    "heads": "is now `show heads`",
    "inspect": "is now `show data`",
    "layers": "is now `analyze --layers`",
    "near-miss": "is now the setting data.near_misses, and bertvision.data.make_near_misses in Python",
    "plan": "is gone: `run` says what its states take; `show data` counts examples, tokens and windows",
    "push": "is gone: `save` the model, then `hf upload` its folder",
    "reproduce": "is now `python -m studies run`, in the repository",
    "train-heads": "is now `run --until heads`",
}


class PanelGroup(TyperGroup):
    """Lists commands by panel in plain text: typer does so only with rich, which also boxes in one-line errors."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 (click's, which typer brings its own of)
        """Find a command; one of an earlier version names what to type now."""
        if cmd_name in OLD_VERBS:
            fail(f"`{cmd_name}` {OLD_VERBS[cmd_name]}")
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 (click's, which typer brings its own of)
        """Write a section for each panel, with the descriptions of all in one column."""
        width = max(map(len, self.commands))
        for panel, commands in groupby(self.commands.items(), key=lambda each: getattr(each[1], "rich_help_panel", "")):
            lines = [
                (name.ljust(width), each.get_short_help_str(formatter.width - 6 - width)) for name, each in commands
            ]
            with formatter.section(panel):
                formatter.write_dl(lines)


app = typer.Typer(
    name="bertvision",
    cls=PanelGroup,
    help="Small heads on all layers of any Hugging Face encoder. Start with: bertvision quickstart",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for panel, verbs in VERBS_BY_PANEL.items():
    for verb in verbs:
        app.command(rich_help_panel=panel)(verb)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        results.print(bertvision.__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    app()
