"""Verbs that hand a model on: a folder that stands alone, or a repository of the hub."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertvision.cli.console import MODEL, AllowOutside, Json, in_one_line, print_json, results

if TYPE_CHECKING:
    from bertvision.serving.predictor import Predictor

Model = Annotated[str, typer.Argument(metavar="MODEL", help=MODEL)]


@in_one_line
def save(
    model: Model,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The new folder to write.")],
    changes_of: Annotated[
        str | None,
        typer.Option("--changes-of", metavar="ENCODER", help="Write only what differs from `default` or a hub id."),
    ] = None,
    allow_outside: AllowOutside = False,
    as_json: Json = False,
) -> None:
    """Write a model into a folder that stands alone.

    DIR holds encoder, tokenizer, head, settings, calibration, model card and the sha256 of each: all that
    bertvision.load, ask, predict and serve need, wherever it is moved to. The card has the scores of the model's run.
    """
    place = _load(model, allow_outside).save_pretrained(out, changes_of=changes_of)
    _show_files({path.name: path.stat().st_size for path in sorted(place.iterdir())}, str(place), as_json)


@in_one_line
def push(
    model: Model,
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Its place on the Hugging Face hub.")],
    private: Annotated[bool, typer.Option("--private", help="Where it is new, only you may see it.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be uploaded, and send nothing.")] = False,
    allow_outside: AllowOutside = False,
    as_json: Json = False,
) -> None:
    """Publish a model on the Hugging Face hub.

    Uploads what `save` writes, with your own token: that of `hf auth login`, or of the variable HF_TOKEN. Then
    bertvision.load("OWNER/NAME") loads it anywhere.
    """
    loaded = _load(model, allow_outside)
    if dry_run:
        _show_files(loaded.hub_files(repository), repository, as_json)
        return
    address = loaded.push_to_hub(repository, private=private)
    if as_json:
        print_json({"repository": repository, "commit": address})
    else:
        results.print(address, markup=False)


def _load(model: str, allow_outside: bool) -> "Predictor":
    import bertvision

    return bertvision.load(model, device="cpu", allow_outside=allow_outside)


def _show_files(sizes: dict[str, int], place: str, as_json: bool) -> None:
    if as_json:
        print_json({"place": place, "files": sizes})
        return
    results.print(f"{place}: {sum(sizes.values()) / 1e6:.1f} MB", markup=False)
    width = max(map(len, sizes))
    for name, size in sizes.items():
        results.print(f"  {name:<{width}}  {size:>13,}", markup=False)
