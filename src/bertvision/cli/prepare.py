"""Verbs before a run: what a data file holds, near misses made from it, what heads and experiments there are."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from bertvision.cli.console import (
    Json,
    Quiet,
    Set,
    in_one_line,
    print_json,
    print_table,
    print_tables,
    progress_for,
    results,
)
from bertvision.errors import FolderError, SettingsError
from bertvision.files import check_file, write_text
from bertvision.tables import counted

SEE_CONFIGS = "; see `bertvision configs`"


@in_one_line
def inspect(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A file of the task, sample:dev, or owner/name.")],
    task: Annotated[str, typer.Option("--task", help="What the file is for, such as rte, ner or classification.")] = (
        "squad2"
    ),
    encoder: Annotated[str, typer.Option("--encoder", help="Whose tokenizer cuts the windows.")] = "default",
    overrides: Set = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Count a file's examples, labels, tokens and windows.

    Reads and cuts the file as an experiment with the same settings would, so that surprises come before training.
    """
    from bertvision.steps.inspect_file import inspect_file

    progress = progress_for(quiet)
    found = inspect_file(data, encoder, task, overrides or (), progress)
    if as_json:
        print_json(found.as_dict())
        return
    results.print(
        f"{found.name}: {counted(found.examples, 'example')}, {counted(found.windows, 'window')}", markup=False
    )
    print_tables(found.as_tables())
    for note in found.notes:
        progress.say(f"warning: {note}")


@in_one_line
def near_miss(
    data: Annotated[str, typer.Argument(metavar="IN.json", help="A SQuAD .json or .json.gz, or IN.json[a:b].")],
    out: Annotated[Path, typer.Option("--out", metavar="OUT.json", help="The file to write; .gz is packed.")],
    share: Annotated[float, typer.Option("--share", help="Of the answerable questions that get one, 0 to 1.")] = 0.5,
    seed: Annotated[int, typer.Option("--seed", help="Another seed makes other questions.", min=0)] = 1,
    rules: Annotated[
        str, typer.Option("--rules", help="Some of them, with commas between.")
    ] = "name,number,antonym,negation,condition,borrowed",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make unanswerable questions from answerable ones.

    Writes IN as SQuAD 2.0, with questions beside its own that the context nearly answers: with another name (name),
    another number or date (number), the opposite of a word (antonym), a "not" (negation), a year or place that goes
    with nothing said (condition), or a question of another context that has the same words (borrowed). Prints how many
    each rule made, with examples. `data.near_misses` of an experiment makes the same ones when it reads its training
    file.
    """
    from bertvision.data.near_miss import write_near_misses

    chosen = [rule.strip() for rule in rules.split(",")]
    found = write_near_misses(data, out, {"share": share, "seed": seed, "rules": chosen}, progress_for(quiet))
    if as_json:
        print_json({**found.as_dict(), "out": str(out)})
        return
    results.print(f"{out}: {found.summary}", markup=False)
    results.print("\n".join(["", *found.example_lines()]), markup=False, emoji=False)


@in_one_line
def heads(
    encoder: Annotated[str | None, typer.Option("--encoder", help="Count for this encoder.")] = None,
    layers: Annotated[int, typer.Option("--layers", help="States, the embedding output included.", min=1)] = 25,
    hidden: Annotated[int, typer.Option("--hidden", help="Width of a state.", min=1)] = 1024,
    as_json: Json = False,
) -> None:
    """List every head with its size.

    Counts parameters and their share of the encoder, at BERT-large's shape unless told otherwise.
    """
    from bertvision.heads.listing import list_heads

    sizes = list_heads(encoder, layers, hidden)
    if as_json:
        print_json([size._asdict() for size in sizes.heads])
        return
    results.print(sizes.title, markup=False)
    print_table(sizes.as_table())
    results.print("%: of the encoder; total has running statistics. Every head: docs/method.md", markup=False)


@in_one_line
def configs(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Print this one, such as squad2/minilm.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Copy it there instead, to be changed.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the experiments that come with the package.

    `bertvision run NAME` runs one, and `bertvision pretrain NAME` those of pretrain/; what it needs, such as data, is
    said in its first lines.
    """
    from bertvision.settings import shipped_configs

    shipped = shipped_configs()
    if name is None:
        if out is not None:
            raise SettingsError("--out is for one experiment; give its NAME too")
        _list_configs(shipped, as_json)
        return
    text = _shipped(name, shipped).read_text(encoding="utf-8")
    if out is not None:
        if out.exists():
            raise FolderError(f"{out}: is there already; give another FILE")
        write_text(check_file(out), text)
    elif as_json:
        print_json({name: text})
    else:
        typer.echo(text, nl=False)


def _shipped(name: str, shipped: Mapping[str, Path]) -> Path:
    from bertvision.settings import find_config, suggest

    path = shipped.get(name) or find_config(Path(name))
    if path not in shipped.values():
        raise SettingsError(f"no experiment {name!r} comes with the package{suggest(name, shipped) or SEE_CONFIGS}")
    return path


def _list_configs(shipped: Mapping[str, Path], as_json: bool) -> None:
    first_lines = {name: path.read_text(encoding="utf-8").partition("\n")[0] for name, path in shipped.items()}
    about = {name: line.removeprefix("#").strip() for name, line in first_lines.items()}
    if as_json:
        print_json(about)
        return
    width = max(map(len, about))
    for name, line in about.items():
        shown = textwrap.shorten(line, results.width - width - 2, placeholder=" ...") if results.is_terminal else line
        results.print(f"{name:<{width}}  {shown}")
