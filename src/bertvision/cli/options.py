"""Arguments and options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path, typer.Argument(metavar="CONFIG.yaml", help="An experiment, such as configs/squad2/minilm.yaml.")
]
Out = Annotated[Path | None, typer.Option("--out", help="The run folder. [default: runs/NAME]", show_default=False)]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as heads.epochs=3.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")]
Json = Annotated[bool, typer.Option("--json", help="Print results as JSON.")]
