"""Verbs that show something: reports, files, heads."""

from pathlib import Path
from typing import Annotated

import typer

from bertvision.cli.console import in_one_line, messages, print_json, print_records, print_table, progress_for, results
from bertvision.cli.options import Json, Quiet, Set
from bertvision.files import check_folder


@in_one_line
def report(
    records: Annotated[Path, typer.Argument(metavar="RECORDS_DIR", help="A run folder, its records, or results/.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for pages, tables and figures.")],
    as_json: Json = False,
) -> None:
    """Draw tables and figures from records alone.

    Writes report.html, report.md, tables.tex and figures as SVG and PNG, the same bytes each time, and needs no torch.
    Several GLUE tasks below one folder add a table of them all.
    """
    from bertvision.records import read_costs, read_differences, read_records
    from bertvision.report.costs import with_costs
    from bertvision.studies.reports import write_report

    found, measured = read_records(records), read_costs(records)
    page = write_report(found, check_folder(out), measured, read_differences(records))
    print_records(with_costs(found, measured), as_json)
    messages.print(f"report: {page}", markup=False)


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

    found = inspect_file(data, encoder, task, overrides or (), progress_for(quiet))
    if as_json:
        print_json(found.as_dict())
        return
    results.print(f"{found.name}: {found.examples:,} examples, {found.windows:,} windows", markup=False)
    for table in found.as_tables():
        print_table(table)


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
    results.print(
        "Percent of the encoder; total counts running statistics too. What each reads: docs/method.md", markup=False
    )
