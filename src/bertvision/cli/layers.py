"""The verb that shows which layer says what."""

from pathlib import Path
from typing import Annotated

import typer

from bertvision.cli.console import in_one_line, progress_for, show_page
from bertvision.cli.options import Json, Quiet, Set
from bertvision.files import check_file


@in_one_line
def layers(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL_DIR", help="OUT/heads/FRACTION/HEAD, OUT/encoder/FRACTION or default.")
    ],
    data: Annotated[str, typer.Option("--data", help="A SQuAD .json or .json.gz; answers in it are optional.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.md", help="Write Markdown there instead of printing.")
    ] = None,
    overrides: Set = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Show which layer speaks for an answer.

    Takes the scores of a head that sums over layers apart, exactly: what each layer adds to the best span, to the gold
    span and to no answer, as means over the questions of a file; and which layer tells answerable questions apart.
    """
    from bertvision.settings import with_overrides
    from bertvision.steps.layer_contributions import layers_of_file

    target = check_file(out) if out is not None else None
    found = layers_of_file(model, data, with_overrides({}, overrides or ()), progress_for(quiet))
    show_page(found.as_page(), found.as_dict(), target, "layers", as_json)
