"""Studies of the papers: `python -m studies list | run NAME | report FOLDER | rescore FOLDER | claims`."""

import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bertvision.cli.console import (
    Json,
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
from bertvision.records import read_records
from bertvision.tables import counted
from studies.claims import claims_page, settle_claims
from studies.kept_predictions import rescore
from studies.report import report_study, write_study_report
from studies.run import StudyPlan, count_work, describe_plan, missing_files, plan_study, run_study
from studies.study import PublishedResult, Study, find_study, read_studies
from studies.study_tables import claims_table, published_table, short_table

RESULTS = Path("results")
OUT = Path("runs/studies")
Encoder = Annotated[str | None, typer.Option("--encoder", help="In the place of the paper's own.")]
Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="The files that experiments have below data/.")
]
Seeds = Annotated[int, typer.Option("--seeds", metavar="N", help="Seeds 1 to N.", min=1)]
Out = Annotated[Path, typer.Option("--out", help="The folder of all studies.")]
app = typer.Typer(
    name="python -m studies",
    help="The papers' experiments: run them again, judge them, and show what their claims rest on.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command(name="list")
@in_one_line
def list_studies(
    check: Annotated[bool, typer.Option("--check", help="Only build the experiments of every study.")] = False,
    encoder: Encoder = None,
    seeds: Seeds = 3,
    as_json: Json = False,
) -> None:
    """List the studies, and what each takes: passes over the paper's data."""
    plan = partial(plan_study, encoder=encoder, seeds=seeds)
    if check:
        _check_studies(plan)
        return
    plans = [(study, plan(study) if study.config else None) for study in read_studies().values()]
    if as_json:
        print_json([_plain_plan(*each) for each in plans])
        return
    for each in plans:
        _print_plan(*each)


@app.command(name="run")
@in_one_line
def run_one(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A study that `list` names.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be run, and run nothing.")] = False,
    encoder: Encoder = None,
    data: Data = None,
    seeds: Seeds = 3,
    out: Out = OUT,
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
    study = find_study(name)
    plan_of = partial(plan_study, encoder=encoder, data=data, seeds=seeds, overrides=overrides or ())
    if not dry_run:
        _run(plan_of(study), out, quiet, as_json)
        return
    plan = plan_of(study) if study.config else None
    if as_json:
        print_json(_plain_plan(study, plan, in_full=True))
    else:
        _print_plan(study, plan, in_full=True)


@app.command(name="report")
@in_one_line
def report_folder(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Runs, or records and costs of them.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the pages. [default: FOLDER]")] = None,
    as_json: Json = False,
) -> None:
    """Draw the report of a study from its records, with the papers' tables and what each way of tuning costs.

    It is `bertvision report` with Hulburd's tables, tables and figures of costs, and a name beside every point. Costs
    are those that `make bench NAME=costs` has left below FOLDER or, without them, those that the runs have noted.
    """
    written = report_study(folder, out or folder)
    print_records(written.records, as_json)
    messages.print(f"report: {written.page}", markup=False)


@app.command(name="rescore")
@in_one_line
def rescore_kept(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Records of a study with kept predictions.")],
    gold: Annotated[Path, typer.Option("--gold", metavar="DEV", help="The dev file, dev-v2.0.json.")],
    out: Annotated[Path | None, typer.Option("--out", help="Also write them as files, a folder each row.")] = None,
) -> None:
    """Score a study's kept dev predictions again, with the official scores, beside what its records hold.

    With --out, every row's predictions.json is as the official evaluate-v2.0.py reads it. Rows that claims compare at
    their best thresholds also have best_spans.json and null_odds.json.
    """
    print_table(rescore(folder, gold, out))


@app.command(name="claims")
@in_one_line
def claims(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Records of any runs, below it.")] = RESULTS,
) -> None:
    """Say which claims of the papers hold by the records below a folder, as Markdown."""
    results.print(claims_page(settle_claims(folder)), markup=False, soft_wrap=True)


def _check_studies(plan: Callable[[Study], StudyPlan]) -> None:
    studies = [study for study in read_studies().values() if study.config]
    num_runs = sum(len(plan(study).experiments) for study in studies)
    results.print(f"{len(studies)} studies, {counted(num_runs, 'run')}: all can be built")


def _print_plan(study: Study, plan: StudyPlan | None, *, in_full: bool = False) -> None:
    """Print what a study takes and what was published; `in_full` also every run."""
    if in_full and study.published:
        print_table(published_table(study))
    results.print(f"\n{study.name}: {study.title}", markup=False)
    lines = [f"{study.paper}; {_takes(study, plan)}"]
    if not in_full:  # else a table shows it
        lines.append(f"published: {'; '.join(map(_published, study.published)) or 'no number'}")
    lines += [f"claims: {len(study.claims)}", f"metric: {study.metric}", *(f"wrong: {each}" for each in study.wrong)]
    if in_full and plan is not None:
        lines += [f"run: {each}" for each in describe_plan(plan)]
        lines += [f"missing: {each}" for each in missing_files(plan)]
    for line in lines:
        results.print(textwrap.fill(line, 80, initial_indent="  ", subsequent_indent="    "), markup=False)


def _plain_plan(study: Study, plan: StudyPlan | None, *, in_full: bool = False) -> dict[str, Any]:
    return {
        **study.model_dump(mode="json"),
        "takes": None if plan is None else count_work(plan)._asdict(),
        "runs": [] if plan is None or not in_full else describe_plan(plan),
        "missing": [] if plan is None else missing_files(plan),
    }


def _takes(study: Study, plan: StudyPlan | None) -> str:
    if plan is None:
        return f"cannot be run here: needs {study.needs}"
    work = count_work(plan)
    epochs, passes = "epoch" + "s" * (work.tuning_epochs != 1), "pass" + "es" * (work.head_passes != 1)
    what = f"{work.tuning_epochs:g} {epochs} of tuning, {work.head_passes:g} {passes} of heads"
    data = f"over the paper's {study.windows:,} windows of {study.tokens:g} tokens"
    return f"takes: {counted(work.runs, 'run')}, {counted(work.seeds, 'seed')}: {what}, {data}"


def _published(result: PublishedResult) -> str:
    fraction = f" after {result.fraction:g}" if isinstance(result.fraction, float) else ""
    return f"{result.row}{fraction}: " + ", ".join(f"{score} {value:g}" for score, value in result.scores.items())


def _run(plan: StudyPlan, out: Path, quiet: bool, as_json: bool) -> None:
    record = run_study(plan, check_folder(out), progress_for(quiet))
    folder = out / plan.study.name
    page = write_study_report(read_records(folder), folder, folder).page
    if as_json:
        print_json(record.model_dump(mode="json"))
        return
    print_table(short_table(record))
    for claim in claims_table(record.claims).texts:
        results.print(f"{claim[-1]}: {claim[0]} {claim[3]}".rstrip(), markup=False)
    messages.print(f"study: {folder / 'study.md'}; report with figures: {page}", markup=False)


if __name__ == "__main__":
    app()
