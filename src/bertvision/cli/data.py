"""Verbs about data and what ships: states of texts in files, counts of a data file, heads and experiments."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from bertvision.cli.console import (
    Json,
    Quiet,
    Set,
    in_one_line,
    messages,
    print_json,
    print_table,
    print_tables,
    progress_for,
    results,
    settings_of,
)
from bertvision.errors import SettingsError
from bertvision.tables import counted


@in_one_line
def encode(
    texts: Annotated[
        str, typer.Argument(metavar="TEXTS", help="A text file (one text), JSONL, a table, a folder; or a task's data.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of states.")],
    encoder: Annotated[str, typer.Option("--encoder", help="default, base, OUT/encoder/FRACTION, hub id.")] = "default",
    task: Annotated[
        str | None, typer.Option("--task", help="Cut TEXTS as examples of this task, to train heads from DIR.")
    ] = None,
    layers: Annotated[
        str | None, typer.Option("--layers", metavar="N,N", help="Some of them; 0: the embedding output.")
    ] = None,
    pooling: Annotated[
        Literal["first", "last", "mean", "max", "first_mean_max", "pair_difference"] | None,
        typer.Option("--pooling", help="One state for each window, as states.pooling names it."),
    ] = None,
    overrides: Set = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Extract the states of all layers into files.

    Writes every token's states (or, with --pooling, one for each window) to safetensors shards in bf16, without
    padding; docs/howto/states.md has their layout. Long texts are cut into windows that overlap. The size is printed
    first. When it was stopped, the same command goes on from there. Heads of an experiment on the same data train from
    DIR with `--set states.folder=DIR`, where --task and the experiment's settings were given here.

    Example: bertvision encode train.csv --task classification --pooling mean --out states
    """
    from bertvision.stages.encode import encode as encode_texts

    found = encode_texts(
        texts,
        out,
        encoder=encoder,
        task=task,
        layers=None if layers is None else _numbers(layers),
        pooling=pooling,
        settings=settings_of(overrides),
        progress=progress_for(quiet),
    )
    if as_json:
        print_json({**found._asdict(), "folder": str(found.folder)})
    else:
        results.print(str(found.folder), markup=False)


def _numbers(given: str) -> list[int]:
    if not all(each.strip().isdecimal() for each in given.split(",")):
        raise SettingsError(f"--layers: expected numbers with commas between, such as 0,6,12, got {given!r}")
    return [int(each) for each in given.split(",")]


@in_one_line
def show(
    what: Annotated[
        Literal["data", "heads", "experiments"], typer.Argument(metavar="WHAT", help="data, heads or experiments.")
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE|NAME",
            help="Of data: a file of the task, sample:dev, or owner/name. Of experiments: print this one.",
            show_default=False,
        ),
    ] = None,
    task: Annotated[
        str, typer.Option("--task", help="What the data are for, such as rte, ner or classification.")
    ] = "squad2",
    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder",
            help="Whose tokenizer cuts data, or whose states heads read. [default: default; BERT-large]",
            show_default=False,
        ),
    ] = None,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Show what data hold, or which heads or experiments exist.

    `show data FILE` reads and cuts a file as an experiment with the same settings would, and counts its examples,
    labels, tokens and windows, so that surprises come before training. `show heads` counts every head's parameters and
    their share of the encoder. `show experiments` lists those that come with the package, for `run NAME` (those of
    pretrain/ for `pretrain NAME`); with a NAME it prints that one, for a file of your own.

    Example: bertvision show experiments squad2/minilm > my.yaml
    """
    if what == "data":
        if name is None:
            raise SettingsError("show data needs a FILE, such as sample:dev")
        _show_data(name, task, encoder or "default", overrides or (), as_json)
    elif what == "experiments":
        _show_experiments(name, as_json)
    elif name is None:
        _show_heads(encoder, as_json)
    else:
        raise SettingsError(f"show heads lists all heads, got {name!r}; for those of an encoder give --encoder {name}")


def _show_data(data: str, task: str, encoder: str, overrides: Sequence[str], as_json: bool) -> None:
    from bertvision.stages.inspect import inspect_file

    found = inspect_file(data, encoder, task, overrides, progress_for(quiet=False))
    if as_json:
        print_json(found.as_dict())
        return
    results.print(
        f"{found.name}: {counted(found.examples, 'example')}, {counted(found.windows, 'window')}", markup=False
    )
    print_tables(found.as_tables())
    for note in found.notes:
        messages.print(f"warning: {note}", markup=False)


def _show_heads(encoder: str | None, as_json: bool) -> None:
    from bertvision.heads.build import list_heads

    sizes = list_heads(encoder)
    if as_json:
        print_json([size._asdict() for size in sizes.heads])
        return
    results.print(sizes.title, markup=False)
    print_table(sizes.as_table())
    results.print("%: of the encoder; total has running statistics. Every head: docs/method.md", markup=False)


def _show_experiments(name: str | None, as_json: bool) -> None:
    from bertvision.settings import shipped_configs

    shipped = shipped_configs()
    if name is None:
        _list_experiments(shipped, as_json)
        return
    text = _shipped(name, shipped).read_text(encoding="utf-8")
    if as_json:
        print_json({name: text})
    else:
        typer.echo(text, nl=False)


def _shipped(name: str, shipped: Mapping[str, Path]) -> Path:
    from bertvision.settings import find_config, suggest

    path = shipped.get(name) or find_config(Path(name))
    if path not in shipped.values():
        hint = suggest(name, shipped) or "; see `bertvision show experiments`"
        raise SettingsError(f"no experiment {name!r} comes with the package{hint}")
    return path


def _list_experiments(shipped: Mapping[str, Path], as_json: bool) -> None:
    first_lines = {name: path.read_text(encoding="utf-8").partition("\n")[0] for name, path in shipped.items()}
    about = {name: line.removeprefix("#").strip() for name, line in first_lines.items()}
    if as_json:
        print_json(about)
        return
    width = max(map(len, about))
    for name, line in about.items():
        shown = textwrap.shorten(line, results.width - width - 2, placeholder=" ...") if results.is_terminal else line
        results.print(f"{name:<{width}}  {shown}")
