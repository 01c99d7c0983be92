"""The verb that makes an encoder of text."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertvision.cli.console import (
    Json,
    ProcessCount,
    Quiet,
    in_one_line,
    is_done_by_several,
    print_json,
    progress_for,
    results,
)
from bertvision.files import check_folder

if TYPE_CHECKING:
    from bertvision.records import PretrainingRecord

Pretraining = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="A pre-training: my.yaml, or a name such as pretrain/tiny.")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as size.layers=6.")
]
Out = Annotated[Path | None, typer.Option("--out", help="The folder. [default: runs/NAME]", show_default=False)]


@in_one_line
def pretrain(
    config: Pretraining,
    out: Out = None,
    overrides: Set = None,
    processes: ProcessCount = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Pre-train a BERT on your own text, anew or further.

    Trains a WordPiece vocabulary, cuts the text into tokens once, and trains on masked words and next sentences, or
    other objectives; with `encoder` in CONFIG it begins with that one's weights and vocabulary. Writes OUT/encoder,
    which `encoder: OUT/encoder` of an experiment and transformers load. When it was stopped, the same command goes on
    from there. Try: bertvision pretrain pretrain/tiny
    """
    if is_done_by_several(processes):
        return
    from bertvision.pretraining.config import read_pretraining

    settings = read_pretraining(config, overrides or ())
    from bertvision.pretraining.pretrain import ENCODER
    from bertvision.pretraining.pretrain import pretrain as pretrain_encoder

    folder = check_folder(Path("runs") / settings.name if out is None else out)
    record = pretrain_encoder(settings, folder, progress_for(quiet))
    if as_json:
        print_json(record.model_dump(mode="json"))
        return
    results.print(_summary(record), markup=False)
    results.print(f"encoder: {folder / ENCODER}", markup=False)


def _summary(record: "PretrainingRecord") -> str:
    told = [f"{record.steps:,} steps, {record.tokens:,} tokens in {record.seconds:,.0f} s"]
    told.append(f"{record.tokens_per_second:,.0f} tokens/s")
    told += [f"{record.peak_fraction:.1%} of the peak"] if record.peak_fraction is not None else []
    if record.loss is not None:
        told.append(f"held-out loss {record.loss.words:.3f} (perplexity {record.loss.perplexity:,.1f})")
    return ", ".join(told)
