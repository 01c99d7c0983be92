"""Verbs about data: what a file holds, and unanswerable questions made from answerable ones."""

from pathlib import Path
from typing import Annotated

import typer

from bertvision.cli.console import (
    Json,
    Quiet,
    Set,
    in_one_line,
    print_json,
    print_tables,
    progress_for,
    results,
)


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
    results.print(f"{found.name}: {found.examples:,} examples, {found.windows:,} windows", markup=False)
    print_tables(found.as_tables())
    for note in found.notes:
        progress.say(f"warning: {note}")


@in_one_line
def near_miss(
    data: Annotated[str, typer.Argument(metavar="IN.json", help="A SQuAD .json or .json.gz, 1.1 or 2.0.")],
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
