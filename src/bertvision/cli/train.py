"""Verbs that train: an experiment or its first stages, a search for its settings, an encoder from text."""

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
    Json,
    Out,
    ProcessCount,
    Quiet,
    Set,
    in_one_line,
    is_done_by_several,
    is_main,
    messages,
    print_json,
    print_records,
    print_table,
    progress_for,
    results,
)
from bertvision.files import check_folder
from bertvision.progress import Progress

if TYPE_CHECKING:
    from bertvision.experiment import Experiment
    from bertvision.records import Choice, PretrainingRecord, RunRecord
    from bertvision.stages.prepare import ExperimentData


@in_one_line
def quickstart(
    out: Annotated[Path, typer.Option("--out", help="The run folder.")] = Path("runs/quickstart"),
    overrides: Set = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train, score and answer on shipped data, in minutes.

    Tunes the default model on the shipped questions, trains heads on all its layers in one pass, ensembles, scores,
    prints a table, writes OUT/report.html, and answers a question with a head. Offline, on a CPU, in minutes.

    Example: bertvision quickstart
    """
    from bertvision.experiment import quickstart_experiment

    experiment = quickstart_experiment(overrides or ())
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
    until: Annotated[
        Literal["encoder", "heads"] | None,
        typer.Option("--until", help="Stop when the encoder is tuned, or when heads are trained. [default: the end]"),
    ] = None,
    processes: ProcessCount = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a whole experiment, from text to report.

    Fine-tune, train heads, predict, score, record, report. When it was stopped, the same command goes on from there;
    what OUT already holds is kept. A file with `variants` is run variant by variant, each in a folder of its own.
    OUT/encoder/FRACTION holds a tuned encoder, OUT/heads/FRACTION/HEAD a head.

    Example: bertvision run squad2/minilm --set heads.epochs=3
    """
    if is_done_by_several(processes):
        return
    from bertvision.experiment import read_experiments

    experiments = read_experiments(config, overrides or ())
    if until is not None:
        _run_until(until, experiments, out, quiet, as_json)
    elif len(experiments) == 1:
        folder = _folder(out, experiments[0])
        records = _run(experiments[0], folder, quiet, as_json)
        if records and not as_json:
            _say_how_to_use(folder, records)
    else:
        _run_all(experiments, out, quiet, as_json)


@in_one_line
def search(
    config: Config,
    out: Annotated[
        Path | None, typer.Option("--out", help="Its folder. [default: runs/NAME-search]", show_default=False)
    ] = None,
    overrides: Set = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Search for the best settings on held-out rows.

    Tries heads, rates, widths, layers and more (or, with search.target=finetune, BERT's grid), as the experiment's
    `search` says. Heads are trained in groups that share one pass over the states. TPE chooses, hopeless trials are
    pruned, and all are scored on held-out rows; the dev set is read at the end, for the best. Writes OUT/best.yaml
    (which `run` takes), best/, search.json, trials.csv and importance.png. When it was stopped, the same command
    goes on. Needs 'bertvision[search]'.

    Example: bertvision search my.yaml --set search.trials=100
    """
    from bertvision.experiment import read_experiment

    experiment = read_experiment(config, overrides or ())
    from bertvision.stages.prepare import read_search_data

    folder = check_folder(Path("runs") / f"{experiment.title}-search" if out is None else out)
    progress = progress_for(quiet)
    data = read_search_data(experiment, progress)  # before torch is imported: a missing file is told at once
    from bertvision.search.search import search as run_search

    record = run_search(experiment, folder, progress, data=data)
    from bertvision.report.learning_figures import trials_table, write_search_figure

    figure = write_search_figure(folder, record)
    if as_json:
        print_json(record.model_dump(mode="json"))
        return
    print_table(trials_table(record))
    results.print(
        f"best: trial {record.best}, {record.metric} {record.best_trial.score:.2f} held out, "
        f"{record.dev_scores.get(record.metric, float('nan')):.2f} on dev",
        markup=False,
    )
    results.print(f"run it: bertvision run {shlex.quote(str(folder / 'best.yaml'))}; figure: {figure}", markup=False)


@in_one_line
def pretrain(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="A pre-training: my.yaml, or a name such as pretrain/tiny.")
    ],
    out: Out = None,
    overrides: Set = None,
    processes: ProcessCount = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Pre-train a BERT on your own text, anew or further.

    Trains a WordPiece vocabulary, cuts the text into tokens once, and trains on masked words and next sentences, or
    other objectives; with `encoder` in CONFIG it begins with that one's weights and vocabulary. Writes OUT/encoder,
    which `encoder: OUT/encoder` of an experiment and transformers load. When it was stopped, the same command goes on
    from there.

    Example: bertvision pretrain pretrain/tiny --set size.layers=6
    """
    if is_done_by_several(processes):
        return
    from bertvision.pretraining.config import read_pretraining

    settings = read_pretraining(config, overrides or ())
    from bertvision.pretraining.pretrain import ENCODER
    from bertvision.pretraining.pretrain import pretrain as pretrain_encoder

    folder = check_folder(Path("runs") / settings.name if out is None else out)
    record = pretrain_encoder(settings, folder, progress_for(quiet))
    if as_json:
        print_json(record.model_dump(mode="json"))
        return
    results.print(_pretraining_summary(record), markup=False)
    results.print(f"encoder: {folder / ENCODER}", markup=False)


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
    from bertvision.evaluate.score import read_questions
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


def _run_until(
    stage: Literal["encoder", "heads"],
    experiments: "Sequence[Experiment]",
    out: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run the first stages, and print what they made."""
    paths: list[Path] = []
    for experiment in experiments:
        progress = progress_for(quiet)
        data = _data(experiment, progress)
        from bertvision.stages.run import run_finetune, run_train_heads

        run_stages = run_finetune if stage == "encoder" else run_train_heads
        paths += run_stages(experiment, _folder(out, experiment), progress, data)
    there = [str(path) for path in paths if path.exists()]
    if as_json:
        print_json(there)
    else:
        results.print("\n".join(there), markup=False)


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
    from bertvision.stages.run import run as run_experiment

    return run_experiment(experiment, out, progress, data=data)


def _data(experiment: "Experiment", progress: Progress) -> "ExperimentData":
    """Read the data before torch and transformers are imported: a missing file is told at once."""
    from bertvision.stages.prepare import read_data

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


def _pretraining_summary(record: "PretrainingRecord") -> str:
    told = [f"{record.steps:,} steps, {record.tokens:,} tokens in {record.seconds:,.0f} s"]
    told.append(f"{record.tokens_per_second:,.0f} tokens/s")
    told += [f"{record.peak_fraction:.1%} of the peak"] if record.peak_fraction is not None else []
    if record.loss is not None:
        told.append(f"held-out loss {record.loss.words:.3f} (perplexity {record.loss.perplexity:,.1f})")
    return ", ".join(told)
