"""Verbs that show and compare whole experiments: reports, the papers' tables, costs, how far answers lie apart."""

import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    print_records,
    print_table,
    progress_for,
    results,
)
from bertvision.files import check_folder
from bertvision.tables import counted

if TYPE_CHECKING:
    from bertvision.reproduce import StudyPlan, StudyWork
    from bertvision.steps.speed import EncoderSpeed
    from bertvision.studies.study import PublishedResult, Study


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
    from bertvision.records import read_costs, read_differences, read_mistakes, read_records
    from bertvision.report.costs import with_costs
    from bertvision.studies.reports import write_report

    found, measured = read_records(records), read_costs(records)
    page = write_report(found, check_folder(out), measured, read_differences(records), read_mistakes(records))
    print_records(with_costs(found, measured), as_json)
    messages.print(f"report: {page}", markup=False)


@in_one_line
def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A study that --list names.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the studies, and what each takes here.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be run, and run nothing.")] = False,
    encoder: Annotated[str | None, typer.Option("--encoder", help="In the place of the paper's own.")] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The files that experiments have below data/.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", help="Seeds 1 to N.", min=1)] = 3,
    out: Annotated[Path, typer.Option("--out", help="The folder of all studies.")] = Path("runs/reproduce"),
    overrides: Set = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a table of the papers again, with a verdict.

    Sets what was published beside what comes out: the mean over seeds with its 95% interval, the paper's own score and
    the official one, the controls that the papers lack, and a verdict by a rule fixed beforehand. Writes
    OUT/NAME/study.json, study.md and report.html; when it was stopped, the same command goes on. Studies share tuned
    encoders.
    """
    from bertvision.errors import SettingsError
    from bertvision.studies.study import find_study, read_studies

    if name is None and not listed:
        raise SettingsError("give the NAME of a study, or --list to see which there are")
    chosen = list(read_studies().values()) if name is None else [find_study(name)]
    from bertvision.reproduce import plan_study

    plan = partial(plan_study, encoder=encoder, data=data, seeds=seeds, overrides=overrides or ())
    if listed or dry_run:
        _show_plans(chosen, plan, _speed_of(encoder or "default"), as_json, told_in_full=not listed)
        return
    _reproduce(plan(chosen[0]), out, quiet, as_json)


def _show_plans(
    studies: "Sequence[Study]",
    plan_study: "Callable[[Study], StudyPlan]",
    speed: "EncoderSpeed | None",
    as_json: bool,
    *,
    told_in_full: bool,
) -> None:
    """Print what studies take and what was published; with `told_in_full` also every run."""
    from bertvision.reproduce import describe_plan, foresee, missing_files, speed_for
    from bertvision.studies.study_tables import published_table

    shown = []
    for study in studies:
        plan = plan_study(study) if study.config else None
        work = None if plan is None else foresee(plan, None if speed is None else speed_for(plan, speed))
        runs = [] if plan is None or not told_in_full else describe_plan(plan)
        missing = [] if plan is None else missing_files(plan)
        shown.append((study, work, runs, missing))
    if as_json:
        print_json([_plain_plan(*each) for each in shown])
        return
    for study, work, runs, missing in shown:
        if len(shown) == 1 and study.published:
            print_table(published_table(study))
        results.print(f"\n{study.name}: {study.title}", markup=False)
        for line in _plan_lines(study, work, runs, missing):
            results.print(textwrap.fill(line, 80, initial_indent="  ", subsequent_indent="    "), markup=False)


def _speed_of(encoder: str) -> "EncoderSpeed | None":
    """Measure how fast an encoder is here; None, and why, where it cannot be loaded, or torch is not installed."""
    from bertvision.errors import EncoderError
    from bertvision.steps.speed import measure_speed

    try:
        return measure_speed(encoder)
    except (EncoderError, ModuleNotFoundError) as error:
        messages.print(f"no times are foreseen: {error}", markup=False)
        return None


def _plan_lines(study: "Study", work: "StudyWork | None", runs: Sequence[str], missing: Sequence[str]) -> list[str]:
    from bertvision.tables import in_time

    if work is None:
        takes = f"not run by this command: needs {study.needs}"
    else:
        where = "on this machine, on the papers' data; predicting dev is extra"
        time = "" if work.seconds is None else f"; about {in_time(work.seconds)} of training {where}"
        epochs, passes = "epoch" + "s" * (work.tuning_epochs != 1), "pass" + "es" * (work.head_passes != 1)
        what = f"{work.tuning_epochs:g} {epochs} of tuning, {work.head_passes:g} {passes} of heads"
        takes = f"takes: {counted(work.runs, 'run')}, {counted(work.seeds, 'seed')}: {what}{time}"
    numbers = "; ".join(_published(each) for each in study.published) or "no number"
    return [
        f"{study.paper}; {takes}",
        *([] if runs else [f"published: {numbers}"]),  # else a table shows them
        f"claims: {len(study.claims)}",
        f"metric: {study.metric}",
        *(f"wrong: {each}" for each in study.wrong),
        *(f"run: {each}" for each in runs),
        *(f"missing: {each}" for each in missing if runs),
    ]


def _published(result: "PublishedResult") -> str:
    fraction = f" after {result.fraction:g}" if isinstance(result.fraction, float) else ""
    return f"{result.row}{fraction}: " + ", ".join(f"{score} {value:g}" for score, value in result.scores.items())


def _plain_plan(
    study: "Study", work: "StudyWork | None", runs: Sequence[str], missing: Sequence[str]
) -> dict[str, Any]:
    takes = None if work is None else work._asdict()
    return {**study.model_dump(mode="json"), "takes": takes, "runs": list(runs), "missing": list(missing)}


def _reproduce(plan: "StudyPlan", out: Path, quiet: bool, as_json: bool) -> None:
    from bertvision.records import read_costs, read_differences, read_records
    from bertvision.reproduce import run_study
    from bertvision.studies.reports import write_report
    from bertvision.studies.study_tables import claims_table, short_table

    record = run_study(plan, check_folder(out), progress_for(quiet))
    folder = out / plan.study.name
    page = write_report(read_records(folder), folder, read_costs(folder), read_differences(folder))
    if as_json:
        print_json(record.model_dump(mode="json"))
        return
    print_table(short_table(record))
    for claim in claims_table(record.claims).texts:
        results.print(f"{claim[-1]}: {claim[0]} {claim[3]}".rstrip(), markup=False)
    messages.print(f"study: {folder / 'study.md'}; report with figures: {page}", markup=False)


@in_one_line
def costs(config: Config, out: Out = None, overrides: Set = None, quiet: Quiet = False, as_json: Json = False) -> None:
    """Measure what every variant costs, in one process.

    Tunes each for some steps, trains its heads and runs its rows alone, in turns and warm, and writes OUT/costs, which
    `report` uses in place of what runs that shared a machine have measured. Nothing else should run meanwhile.
    """
    from bertvision.experiment import read_experiments

    experiments = read_experiments(config, overrides or ())
    from bertvision.steps.data import read_data

    own = experiments[0].folder.parts[0]
    folder, progress = check_folder(Path("runs") / own if out is None else out), progress_for(quiet)
    data = read_data(experiments[0], progress)  # before torch is imported
    from bertvision.records import COSTS_FOLDER
    from bertvision.report.costs import costs_table
    from bertvision.steps.costs import measure_methods

    measured = measure_methods(experiments, folder, progress, data)
    if as_json:
        print_json([each.model_dump(mode="json") for each in measured])
        return
    print_table(costs_table(measured))
    results.print(f"milliseconds are of one window; costs: {folder / COSTS_FOLDER}", markup=False)


@in_one_line
def compare_methods(
    run: Annotated[Path, typer.Argument(metavar="OUT", help="The run folder of an experiment with variants.")],
    data: Annotated[str, typer.Option("--data", help="The examples that were answered, with golds.")],
    against: Annotated[str, typer.Option("--against", help="The method that all others are compared with.")] = "full",
    as_json: Json = False,
) -> None:
    """Compare all variants with one, on the same examples.

    Resamples whole articles of questions, documents of sentences, or rows, and together with them the seeds, paired,
    for every row that a report shows. Compares the task's main score, and writes OUT/differences.json, whose 95%
    intervals `report` puts into its tables. Needs no torch.

    F1 of questions is compared at the threshold 0 of "no answer" and, where predictions have best_spans.json and
    null_odds.json, at the best threshold, which is chosen anew in every resample for each of the two rows and each
    seed.
    """
    from bertvision.evaluate.compare_methods import compare_folder

    found = compare_folder(run, data, against)
    if as_json:
        print_json([each.model_dump(mode="json") for each in found.differences])
        return
    print_table(found.as_table())
    messages.print(f"differences: {found.path}", markup=False)
