"""`bertvision`: parse, call one function of the stages, print; one verb per stage.

Everything heavy is imported inside the verbs, so that `--help` is quick and `score` and `report` need no torch.
"""

from typing import Annotated

import typer

import bertvision
from bertvision.cli.answers import ensemble, predict
from bertvision.cli.ask import ask
from bertvision.cli.evaluation import analyze, calibrate, compare
from bertvision.cli.experiments import finetune, plan, quickstart, run, train_heads
from bertvision.cli.export import export
from bertvision.cli.layers import layers
from bertvision.cli.methods import compare_methods, costs
from bertvision.cli.scores import score
from bertvision.cli.serve import serve
from bertvision.cli.views import bench, heads, inspect, report
from bertvision.console import results

# In the order in which --help lists them.
VERBS = (
    *(quickstart, run, finetune, train_heads, predict, ask, serve, export, score),
    *(ensemble, compare, analyze, calibrate, layers, report, inspect, heads, plan, costs, compare_methods, bench),
)

app = typer.Typer(
    name="bertvision",
    help="Small heads on all layers of any Hugging Face encoder. Start with: bertvision quickstart",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for verb in VERBS:
    app.command()(verb)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        results.print(bertvision.__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    app()
