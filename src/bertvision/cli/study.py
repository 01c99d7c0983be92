"""Verbs that show and compare whole experiments: reports, what variants cost, how far their answers lie apart."""

from pathlib import Path
from typing import Annotated

import typer

from bertvision.cli.console import (
    Config,
    Json,
    Out,
    Quiet,
    Set,
    in_one_line,
    messages,
    print_json,
    print_table,
    progress_for,
    results,
)
from bertvision.files import check_folder


@in_one_line
def report(
    records: Annotated[Path, typer.Argument(metavar="RECORDS_DIR", help="A run folder, its records, or results/.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for pages, tables and figures.")],
    as_json: Json = False,
) -> None:
    """Draw tables and figures from records alone.

    Writes report.html, report.md, tables.tex and figures as SVG and PNG, the same bytes each time, and needs no torch.
    Several GLUE tasks below one folder add a table of them all. Of a run folder, errors and rows that look mislabelled
    are listed with their texts, which lie with its predictions and in no record.
    """
    from bertvision.cli.records import print_records
    from bertvision.records import read_costs, read_differences, read_mistakes, read_records
    from bertvision.report.costs import with_costs
    from bertvision.studies.reports import write_report

    found, measured = read_records(records), read_costs(records)
    page = write_report(found, check_folder(out), measured, read_differences(records), read_mistakes(records))
    print_records(with_costs(found, measured), as_json)
    messages.print(f"report: {page}", markup=False)


@in_one_line
def costs(config: Config, out: Out = None, overrides: Set = None, quiet: Quiet = False, as_json: Json = False) -> None:
    """Measure what every variant costs, in one process.

    Tunes each for some steps, trains its heads and runs its rows alone, in turns and warm, and writes OUT/costs, which
    `report` uses in place of what runs that shared a machine have measured. Nothing else should run meanwhile.
    """
    from bertvision.experiment import read_experiments
    from bertvision.records import COSTS_FOLDER
    from bertvision.report.costs import costs_table
    from bertvision.steps.costs import measure_methods

    experiments = read_experiments(config, overrides or ())
    own = experiments[0].folder.parts[0]
    folder = check_folder(Path("runs") / own if out is None else out)
    measured = measure_methods(experiments, folder, progress_for(quiet))
    if as_json:
        print_json([each.model_dump(mode="json") for each in measured])
        return
    print_table(costs_table(measured))
    results.print(f"milliseconds are of one window; costs: {folder / COSTS_FOLDER}", markup=False)


@in_one_line
def compare_methods(
    run: Annotated[Path, typer.Argument(metavar="OUT", help="The run folder of an experiment with variants.")],
    data: Annotated[str, typer.Option("--data", help="The questions that were answered, with golds.")],
    against: Annotated[str, typer.Option("--against", help="The method that all others are compared with.")] = "full",
    as_json: Json = False,
) -> None:
    """Compare all variants with one, question by question.

    Resamples questions, paired, the mean over seeds, for every row that a report shows, and writes
    OUT/differences.json, whose 95% intervals `report` puts into its tables. Needs no torch.

    F1 is compared at the threshold 0 of "no answer" and, where predictions have best_spans.json and null_odds.json, at
    the best threshold, which is chosen anew in every resample for each of the two rows and each seed.
    """
    from bertvision.evaluate.compare_methods import compare_folder

    found = compare_folder(run, data, against)
    if as_json:
        print_json([each.model_dump(mode="json") for each in found.differences])
        return
    print_table(found.as_table())
    messages.print(f"differences: {found.path}", markup=False)
