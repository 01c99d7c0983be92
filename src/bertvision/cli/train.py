"""Verbs that take an experiment: the whole line, its stages one by one, and what it would cost."""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertvision.cli.console import (
    Config,
    Deterministic,
    Json,
    Out,
    ProcessCount,
    Quiet,
    ReportTo,
    Set,
    in_one_line,
    is_done_by_several,
    is_main,
    messages,
    print_json,
    print_records,
    progress_for,
    results,
)
from bertvision.files import check_folder
from bertvision.progress import Progress

if TYPE_CHECKING:
    from bertvision.experiment import Experiment
    from bertvision.records import RunRecord
    from bertvision.steps.data import ExperimentData


@in_one_line
def quickstart(
    out: Annotated[Path, typer.Option("--out", help="The run folder.")] = Path("runs/quickstart"),
    overrides: Set = None,
    report_to: ReportTo = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train, score and answer on shipped data, in minutes.

    Tunes the default model on the shipped questions, trains heads on all its layers in one pass, ensembles, scores,
    prints a table, writes OUT/report.html, and answers a question with a head. Offline, on a CPU, in minutes.
    """
    from bertvision.experiment import quickstart_experiment

    experiment = quickstart_experiment(_with_options(overrides, report_to))
    if not quiet:
        messages.print("Tuning the default model on shipped questions, and training heads on its layers.")
    records = _run(experiment, _folder(out, experiment), quiet, as_json)
    if not as_json:
        _say_what_next(experiment, records, out)


@in_one_line
def run(
    config: Config,
    out: Out = None,
    overrides: Set = None,
    report_to: ReportTo = None,
    deterministic: Deterministic = False,
    processes: ProcessCount = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a whole experiment, from text to report.

    Fine-tune, train heads, predict, score, record, report. When it was stopped, the same command goes on from there;
    what OUT already holds is kept. A file with `variants` is run variant by variant, each in a folder of its own.
    """
    if is_done_by_several(processes):
        return
    from bertvision.experiment import read_experiments

    experiments = read_experiments(config, _with_options(overrides, report_to, deterministic))
    if len(experiments) == 1:
        folder = _folder(out, experiments[0])
        records = _run(experiments[0], folder, quiet, as_json)
        if records and not as_json:
            _say_how_to_use(folder, records)
    else:
        _run_all(experiments, out, quiet, as_json)


@in_one_line
def finetune(
    config: Config,
    out: Out = None,
    overrides: Set = None,
    report_to: ReportTo = None,
    deterministic: Deterministic = False,
    processes: ProcessCount = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run an experiment's first stage: tune the encoder.

    Writes OUT/encoder/FRACTION for every fraction, from one run.
    """
    if is_done_by_several(processes):
        return
    experiment = _experiment(config, _with_options(overrides, report_to, deterministic))
    folder, progress = _folder(out, experiment), progress_for(quiet)
    data = _data(experiment, progress)
    from bertvision.steps.run import run_finetune

    _print_paths(run_finetune(experiment, folder, progress, data), as_json)


@in_one_line
def train_heads(
    config: Config,
    out: Out = None,
    overrides: Set = None,
    report_to: ReportTo = None,
    deterministic: Deterministic = False,
    processes: ProcessCount = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run the first two stages: tune, then train all heads.

    Writes OUT/heads/FRACTION/HEAD for every head, all heads of a fraction in one pass of the frozen encoder.
    """
    if is_done_by_several(processes):
        return
    experiment = _experiment(config, _with_options(overrides, report_to, deterministic))
    folder, progress = _folder(out, experiment), progress_for(quiet)
    data = _data(experiment, progress)
    from bertvision.steps.run import run_train_heads

    _print_paths(run_train_heads(experiment, folder, progress, data), as_json)


def _say_what_next(experiment: "Experiment", records: "Sequence[RunRecord]", out: Path) -> None:
    """Answer a question with the last head, and name commands for the next ones."""
    from bertvision.run_folder import folder_of_seed

    program, trained = _program(), [record for record in records if record.kind == "head"]
    if trained:
        own = folder_of_seed(out, trained[-1].seed, experiment.seeds, trained[-1].fraction)
        head = own.head(trained[-1].row)
        _say_what_silence_scores(records)
        if experiment.task == "squad2":
            _show_answer(experiment, head)
        results.print("Next, answer a whole file with this head (--data takes your own too):", markup=False)
        command = ["predict", str(head), "--data", experiment.data.dev, "--out", str(out / "answers")]
        results.print(f"  {program} {shlex.join(command)}", markup=False)
    results.print("or a question about a text of yours with the default model:", markup=False)
    results.print(f'  {program} ask --question "Who built the weir?" --file YOURS.txt', markup=False)


def _say_how_to_use(out: Path, records: "Sequence[RunRecord]") -> None:
    """Name the best model of a run, and the command that uses it; say where what is no model of it is better."""
    from bertvision.model_config import best_model, better_than_models
    from bertvision.records import main_score

    if (best := best_model(out)) == out:
        return
    _say_what_silence_scores(records)
    if (better := better_than_models(out, records)) is not None:
        what = "the encoder as given" if better.kind == "encoder" else f"the {better.kind} {better.row}"
        results.print(f"{what} scores {main_score(better):.1f}, more than any model of this run", markup=False)
    seeds = len({record.seed for record in records})
    what = f"best single model (the table has means of {seeds} seeds)" if seeds > 1 else "best model"
    results.print(f"{what}: {best.relative_to(out)}; use it on a file of your own:", markup=False)
    results.print(f"  {_program()} predict {shlex.quote(str(out))} --data FILE --out FOLDER", markup=False)


def _say_what_silence_scores(records: "Sequence[RunRecord]") -> None:
    from bertvision.records import silence_score

    if (score := silence_score(records[0])) is not None:
        results.print(f"Always answering “no answer” would score {score:.1f} here.", markup=False)


def _show_answer(experiment: "Experiment", head: Path) -> None:
    import bertvision
    from bertvision.evaluate.golds import read_questions
    from bertvision.serving.answers import answer_lines
    from bertvision.serving.reader import Reader

    questions = read_questions(str(experiment.data.dev)).questions
    asked = next((each for each in questions if not each.is_impossible), questions[0])
    reader = bertvision.load(head, device=experiment.device)
    assert isinstance(reader, Reader)
    answers = reader(asked.text, asked.context, top_k=3)
    results.print(f"\n{asked.text} {head} answers:", markup=False, emoji=False)
    for line in answer_lines(answers, asked.context, is_terminal=results.is_terminal):
        results.print(line, markup=False, emoji=False)
    results.print()


def _run(experiment: "Experiment", out: Path, quiet: bool, as_json: bool) -> "list[RunRecord]":
    records = _records(experiment, out, progress_for(quiet))
    return _report(records, out, as_json)


def _run_all(experiments: "Sequence[Experiment]", out: Path | None, quiet: bool, as_json: bool) -> None:
    if any(each.tune is not None and any(inserted.is_lora for inserted in each.tune.inserted) for each in experiments):
        from bertvision.encoder.tuning.adapters import check_peft

        check_peft()  # before the variants ahead of it are trained
    records = []
    for experiment in experiments:
        if not quiet:
            messages.print(f"{experiment.variant}:", markup=False)
        records += _records(experiment, _folder(out, experiment), progress_for(quiet))
    _report(records, _folder(out, experiments[0]).parent, as_json)


def _records(experiment: "Experiment", out: Path, progress: Progress) -> "list[RunRecord]":
    data = _data(experiment, progress)
    from bertvision.steps.run import run as run_experiment

    return run_experiment(experiment, out, progress, data=data)


def _data(experiment: "Experiment", progress: Progress) -> "ExperimentData":
    """Read the data before torch and transformers are imported: a missing file is told at once."""
    from bertvision.steps.data import read_data

    return read_data(experiment, progress)


def _report(records: "list[RunRecord]", folder: Path, as_json: bool) -> "list[RunRecord]":
    """Write the report of a run folder, and print its records; of several processes, one does so and has them."""
    if not is_main():
        return []
    from bertvision.records import read_differences, read_mistakes
    from bertvision.report.page import write_report

    page = write_report(records, folder, read_differences(folder), read_mistakes(folder))
    print_records(records, as_json)
    if not as_json:
        results.print(f"report: {page}", markup=False)
    return records


def _experiment(config: Path, overrides: Sequence[str] | None) -> "Experiment":
    from bertvision.experiment import read_experiment

    return read_experiment(config, overrides or ())


def _with_options(
    overrides: Sequence[str] | None, trackers: Sequence[str] | None, deterministic: bool = False
) -> list[str]:
    """Write options that are settings too as overrides."""
    options = [f"report_to={json.dumps(trackers)}"] if trackers else []
    return [*(overrides or ()), *options, *(["deterministic=true"] if deterministic else [])]


def _program() -> str:
    """Name this program as it can be called from here: it is not on the path of who ran it through make."""
    if shutil.which("bertvision"):
        return "bertvision"
    if sys.argv[0].endswith("__main__.py"):
        return "python -m bertvision"
    return shlex.quote(min(os.path.relpath(sys.argv[0]), sys.argv[0], key=len))


def _folder(out: Path | None, experiment: "Experiment") -> Path:
    own = experiment.folder
    return check_folder(Path("runs") / own if out is None else out.joinpath(*own.parts[1:]))


def _print_paths(paths: Sequence[Path], as_json: bool) -> None:
    there = [str(path) for path in paths if path.exists()]
    if as_json:
        print_json(there)
    else:
        results.print("\n".join(there), markup=False)
