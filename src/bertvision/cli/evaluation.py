"""Verbs about how far answers can be trusted."""

from pathlib import Path
from typing import Annotated

import typer

from bertvision.cli.options import Json
from bertvision.console import in_one_line, show_page
from bertvision.files import check_file


@in_one_line
def calibrate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="OUT/predictions/FRACTION/ROW, or of `predict --out`.")],
    gold: Annotated[str, typer.Option("--gold", help="The SQuAD file with the answers.")],
    held_out: Annotated[
        Path | None,
        typer.Option("--held-out", metavar="DIR", help="The model's answers to other questions, for tuning."),
    ] = None,
    held_out_gold: Annotated[
        str | None, typer.Option("--held-out-gold", metavar="FILE", help="Those questions with their answers.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.md", help="Write Markdown there instead of printing.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Tune the null threshold and probabilities.

    On held-out answers: those of the run folder (data.held_out), those that are given, or else one half of the articles
    for the other half. Shows scores and reliability before and after; needs no torch.
    """
    from bertvision.stages.calibrate_folder import calibrate_folder

    target = check_file(out) if out is not None else None
    found = calibrate_folder(folder, gold, held_out, held_out_gold)
    show_page(found.as_page(), found.as_dict(), target, "calibration", as_json)
