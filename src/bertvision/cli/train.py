"""Verbs that take an experiment: the whole line, its stages one by one, and what it would cost."""

import json
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

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
    settings_of,
)
from bertvision.files import check_folder
from bertvision.progress import Progress

if TYPE_CHECKING:
    from bertvision.experiment import Experiment
    from bertvision.records import Choice, RunRecord
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
    DIR with `--set states.folder=DIR`, where --task and the experiment's settings were given here. Example:
    bertvision encode train.csv --task classification --pooling mean --out states
    """
    from bertvision.steps.encode import encode as encode_texts

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
    from bertvision.errors import SettingsError

    if not all(each.strip().isdecimal() for each in given.split(",")):
        raise SettingsError(f"--layers: expected numbers with commas between, such as 0,6,12, got {given!r}")
    return [int(each) for each in given.split(",")]


def _say_what_next(experiment: "Experiment", records: "Sequence[RunRecord]", out: Path) -> None:
    """Answer a question with the last head, and name commands for the next ones."""
    from bertvision.run_folder import folder_of_seed

    program, trained = _program(), [record for record in records if record.kind == "head"]
    if trained:
        own = folder_of_seed(out, trained[-1].seed, experiment.seeds, trained[-1].fraction)
        head = own.head(trained[-1].model)
        _say_what_silence_scores(records)
        if experiment.task == "squad2":
            _show_answer(experiment, head)
        results.print("Next, answer a whole file with this head (--data takes your own too):", markup=False)
        command = ["predict", str(head), "--data", experiment.data.scored_file, "--out", str(out / "answers")]
        results.print(f"  {program} {shlex.join(command)}", markup=False)
    results.print("or a question about a text of yours with the default model:", markup=False)
    results.print(f'  {program} ask --question "Who built the weir?" --file YOURS.txt', markup=False)


def _say_how_to_use(out: Path, records: "Sequence[RunRecord]") -> None:
    """Name the best model of a run, and the command that uses it; say where what is no model of it is better."""
    from bertvision.model_config import better_than_models, choose_from, model_of

    if (choice := choose_from(out, records)) is None:
        return
    best = choice.best[0]
    _say_what_it_is_worth(choice)
    _say_what_silence_scores(records)
    if (better := better_than_models(out, records)) is not None:
        what = "the encoder as given" if better.kind == "encoder" else f"the {better.kind} {better.model}"
        results.print(f"{what} has {_estimate(better)}, more than any model of this run", markup=False)
    seeds = len({record.seed for record in records})
    what = f"best single model (the table has means of {seeds} seeds)" if seeds > 1 else "best model"
    results.print(f"{what}: {model_of(out, best).relative_to(out)}; use it on a file of your own:", markup=False)
    results.print(f"  {_program()} predict {shlex.quote(str(out))} --data FILE --out FOLDER", markup=False)


def _say_what_it_is_worth(choice: "Choice") -> None:
    """Print the best model's main score with what it is worth, and what it is tied with."""
    best = choice.best[0]
    if scored := _estimate(best):
        results.print(
            textwrap.fill(", ".join(filter(None, [f"{best.model}: {scored}", choice.ties])), 80), markup=False
        )


def _estimate(record: "RunRecord") -> str:
    """Write a main score with its interval and its number of examples; empty where there is no score."""
    from bertvision.records import MAIN_SCORES, worth_of
    from bertvision.tables import counted

    metric, examples = MAIN_SCORES[record.task], record.data["dev"].examples
    if metric not in record.scores:
        return ""
    worth = worth_of(record.intervals.get(metric), examples)
    return f"{metric} {record.scores[metric]:.1f} on {counted(examples, 'example')}{f' ({worth})' if worth else ''}"


def _say_what_silence_scores(records: "Sequence[RunRecord]") -> None:
    from bertvision.records import silence_score

    if (score := silence_score(records[0])) is not None:
        results.print(f"Always answering “no answer” would score {score:.1f} here.", markup=False)


def _show_answer(experiment: "Experiment", head: Path) -> None:
    import bertvision
    from bertvision.evaluate.golds import read_questions
    from bertvision.serving.answers import answer_lines
    from bertvision.serving.reader import Reader

    questions = read_questions(experiment.data.scored_file).questions
    asked = next((each for each in questions if not each.is_impossible), questions[0])
    reader = bertvision.load(head, device=experiment.device)
    assert isinstance(reader, Reader)
    answers = reader(asked.text, asked.context, top_k=3)
    results.print(f"\n{asked.text} {head} answers:", markup=False, emoji=False)
    for line in answer_lines(answers, [asked.context], is_terminal=results.is_terminal):
        results.print(line, markup=False, emoji=False)
    results.print()


def _run(experiment: "Experiment", out: Path, quiet: bool, as_json: bool) -> "list[RunRecord]":
    records = _records(experiment, out, progress_for(quiet))
    return _report(records, out, as_json)


def _run_all(experiments: "Sequence[Experiment]", out: Path | None, quiet: bool, as_json: bool) -> None:
    if any(each.tune is not None and any(inserted.is_lora for inserted in each.tune.inserted) for each in experiments):
        from bertvision.encoder.tuning.adapters import check_peft

        check_peft()  # before the variants ahead of it are trained
    from bertvision.records import choose_model

    records = []
    choices = []
    for experiment in experiments:
        if not quiet:
            messages.print(f"{experiment.variant}:", markup=False)
        own = _records(experiment, _folder(out, experiment), progress_for(quiet))
        records += own
        models = [[each] for each in own if each.kind != "baseline"]
        choices += [choose_model(models)] if models else []
    _report(records, _folder(out, experiments[0]).parent, as_json)
    for choice in choices if not as_json else ():
        results.print(f"{choice.best[0].variant}:", markup=False)
        _say_what_it_is_worth(choice)


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
