"""`bertvision`: parse, call one function of the stages, print; one verb per stage.

Everything heavy is imported inside the verbs, so that `--help` is quick and `score` and `report` need no torch.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import bertvision
from bertvision.console import (
    in_one_line,
    messages,
    page_as_markdown,
    print_json,
    print_page,
    print_records,
    print_table,
    progress_for,
    results,
)
from bertvision.errors import DataError, SettingsError
from bertvision.files import check_file, check_folder, write_text
from bertvision.records import RunRecord, fraction_name

if TYPE_CHECKING:
    from bertvision.experiment import Experiment

app = typer.Typer(
    name="bertvision",
    help="Small heads on all layers of any Hugging Face encoder. Start with: bertvision quickstart",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Config = Annotated[
    Path, typer.Argument(metavar="CONFIG.yaml", help="An experiment, such as configs/squad2/minilm.yaml.")
]
Out = Annotated[Path | None, typer.Option("--out", help="The run folder. [default: runs/NAME]", show_default=False)]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as heads.epochs=3.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")]
Json = Annotated[bool, typer.Option("--json", help="Print results as JSON.")]


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        results.print(bertvision.__version__)
        raise typer.Exit


@app.command()
@in_one_line
def quickstart(
    out: Annotated[Path, typer.Option("--out", help="The run folder.")] = Path("runs/quickstart"),
    overrides: Set = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run the whole line on shipped data in minutes.

    Fine-tunes a small encoder on the shipped questions, trains heads on all its layers in one pass, ensembles,
    scores, prints a table and writes OUT/report.html. Offline, on a CPU, in at most four minutes.
    """
    from bertvision.experiment import quickstart_experiment

    experiment = quickstart_experiment(overrides or ())
    if not quiet:
        messages.print("Fine-tuning a small encoder on shipped questions, then training heads on it.")
    records = _run(experiment, _folder(out, experiment), quiet, as_json)
    if not as_json:
        last = next(record for record in reversed(records) if record.kind == "head")
        head = out / "heads" / fraction_name(last.fraction) / last.row
        results.print("Next, answer questions with a head (--data takes your own file too), or see all heads:")
        results.print(f"  {_program()} predict {head} --data sample:dev --out {out / 'answers'}", markup=False)
        results.print(f"  {_program()} heads --encoder default", markup=False)


@app.command()
@in_one_line
def run(config: Config, out: Out = None, overrides: Set = None, quiet: Quiet = False, as_json: Json = False) -> None:
    """Run a whole experiment, from text to report.

    Fine-tune, train heads, predict, score, record, report. When it was stopped, the same command goes on from there;
    what OUT already holds is kept.
    """
    experiment = _experiment(config, overrides)
    _run(experiment, _folder(out, experiment), quiet, as_json)


@app.command()
@in_one_line
def finetune(
    config: Config, out: Out = None, overrides: Set = None, quiet: Quiet = False, as_json: Json = False
) -> None:
    """Run an experiment's first stage: tune the encoder.

    Writes OUT/encoder/FRACTION for every fraction, from one run.
    """
    from bertvision.stages.run import run_finetune

    experiment = _experiment(config, overrides)
    _print_paths(run_finetune(experiment, _folder(out, experiment), progress_for(quiet)), as_json)


@app.command()
@in_one_line
def train_heads(
    config: Config, out: Out = None, overrides: Set = None, quiet: Quiet = False, as_json: Json = False
) -> None:
    """Run the first two stages: tune, then train all heads.

    Writes OUT/heads/FRACTION/HEAD for every head, all heads of a fraction in one pass of the frozen encoder.
    """
    from bertvision.stages.run import run_train_heads

    experiment = _experiment(config, overrides)
    _print_paths(run_train_heads(experiment, _folder(out, experiment), progress_for(quiet)), as_json)


@app.command()
@in_one_line
def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL_DIR", help="OUT/heads/FRACTION/HEAD or OUT/encoder/FRACTION.")
    ],
    data: Annotated[str, typer.Option("--data", help="A SQuAD .json or .json.gz; answers in it are optional.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for predictions.json, n-best, null odds and logits.")],
    overrides: Set = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Answer a file's questions with a trained model.

    Writes predictions.json, nbest_predictions.json and null_odds.json as run_qa does, and logits.safetensors; prints
    the scores where the file has answers.
    """
    from bertvision.settings import with_overrides
    from bertvision.stages.predict_file import predict_file

    answered = predict_file(model, data, check_folder(out), with_overrides({}, overrides or ()), progress_for(quiet))
    if as_json:
        print_json({"questions": len(answered.predictions), "out": str(out), "scores": answered.scores})
        return
    declined = sum(not each.text for each in answered.predictions)
    results.print(
        f"{len(answered.predictions):,} questions, {declined:,} declined; answers in {out / 'predictions.json'}",
        markup=False,
    )
    if answered.scores is not None:
        print_json(answered.scores)


@app.command()
@in_one_line
def score(
    task: Annotated[str, typer.Argument(help="Which official metric: squad1 or squad2.")],
    gold: Annotated[str, typer.Option("--gold", help="The SQuAD file with the answers.")],
    predictions: Annotated[Path, typer.Option("--predictions", help="JSON: question id -> answer text.")],
    null_odds: Annotated[
        Path | None,
        typer.Option("--null-odds", help="JSON: question id -> odds of no answer; goes with best_spans.json."),
    ] = None,
    na_prob_thresh: Annotated[
        float,
        typer.Option("--na-prob-thresh", help="Odds above this count as no answer; 0 fits bertvision's own odds."),
    ] = 1.0,
) -> None:
    """Print what the official SQuAD script prints.

    Reads a gold file and a predictions file, prints the scores as JSON, and needs no torch.
    """
    from bertvision.metrics.squad import score_squad1, score_squad2
    from bertvision.predictions.files import read_mapping
    from bertvision.tasks.squad import read_squad

    if task not in ("squad1", "squad2"):
        raise SettingsError(f"no task {task!r}; known: 'squad1', 'squad2'")
    questions = read_squad(gold, answers="texts", hub_split="validation").questions
    answers = read_mapping(predictions, str)
    if task == "squad1":
        if null_odds is not None:
            raise DataError("squad1 has no unanswerable questions; leave --null-odds out or score squad2")
        if missing := [question.id for question in questions if question.id not in answers]:
            messages.print(
                f"{len(missing)} questions without a prediction, such as {missing[0]!r}, score 0", markup=False
            )
        print_json(score_squad1(questions, answers))
    else:
        odds = read_mapping(null_odds, float) if null_odds is not None else None
        print_json(score_squad2(questions, answers, odds, na_prob_thresh))


@app.command()
@in_one_line
def ensemble(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="OUT/predictions/FRACTION/ROW, or of `predict --out`.")
    ],
    data: Annotated[str, typer.Option("--data", help="The question file that they answered.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the ensemble's answers.")],
    how: Annotated[str, typer.Option("--how", help="max (the papers' way), mean, logits or weighted.")] = "max",
    weights: Annotated[str | None, typer.Option("--weights", help="One for each DIR, such as 0.6,0.4.")] = None,
    held_out: Annotated[
        list[Path] | None,
        typer.Option("--held-out", metavar="DIR", help="For each DIR, its model's answers to other questions."),
    ] = None,
    held_out_data: Annotated[
        str | None, typer.Option("--held-out-data", help="Those questions: weights follow the F1 on them.")
    ] = None,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Combine several models' answers into one's.

    Token by token where the models share tokenizer and windows, otherwise by the answers' characters. Writes what
    `predict` writes, and ensemble.json; prints the scores of each model and of all together.
    """
    from bertvision.settings import with_overrides
    from bertvision.stages.ensemble_folders import ensemble_folders
    from bertvision.stages.ensemble_weights import choose_way

    way = choose_way(how, weights, held_out or (), held_out_data)
    made = ensemble_folders(folders, data, check_folder(out), way, with_overrides({}, overrides or ()))
    if as_json:
        print_json({**made.as_dict(), "out": str(out)})
        return
    results.print(f"{len(made.predictions):,} questions, combined by {made.by}; answers in {out}", markup=False)
    if made.scores is not None:
        header, *rows = made.as_table()
        print_table(header, rows, (False, *[True] * (len(header) - 1)))


@app.command()
@in_one_line
def compare(
    one: Annotated[Path, typer.Argument(metavar="A", help="A predictions.json, or a folder that holds one.")],
    other: Annotated[Path, typer.Argument(metavar="B", help="Another one, for the same questions.")],
    gold: Annotated[str, typer.Option("--gold", help="The SQuAD file with the answers.")],
    metric: Annotated[str, typer.Option("--metric", help="exact, f1 or both.")] = "both",
    resamples: Annotated[int, typer.Option("--resamples", help="Of the bootstrap.", min=100)] = 10_000,
    seed: Annotated[int, typer.Option("--seed", help="Of the bootstrap.", min=0)] = 1,
    clusters: Annotated[
        str, typer.Option("--clusters", help="What is resampled: question, or article, whose questions are alike.")
    ] = "question",
    disagreements: Annotated[
        int, typer.Option("--disagreements", metavar="N", help="Show the first N that one alone gets right.", min=0)
    ] = 0,
    as_json: Json = False,
) -> None:
    """Tell whether two models' scores differ by chance.

    Prints the difference with a paired-bootstrap interval and p-value, McNemar's exact test, and who is right how
    often; needs no torch.
    """
    from bertvision.stages.compare_files import CompareConfig, compare_files

    config = CompareConfig(metric, clusters, resamples, seed, disagreements)
    found = compare_files(one, other, gold, config)
    if as_json:
        print_json(found.as_dict())
    else:
        print_page(found.as_page())


@app.command()
@in_one_line
def analyze(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="OUT/predictions/FRACTION/ROW, or of `predict --out`.")],
    gold: Annotated[str, typer.Option("--gold", help="The SQuAD file with the answers.")],
    against: Annotated[Path | None, typer.Option("--against", metavar="DIR", help="Another model's folder.")] = None,
    disagreements: Annotated[
        int, typer.Option("--disagreements", metavar="N", help="With --against: show the first N.", min=0)
    ] = 10,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.md", help="Write Markdown there instead of printing.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show where a model is right and where not.

    Scores by question type, question word, answer and context; what the errors are; whether the second most likely
    answer would have been right; with --against, what each of two models alone gets right. Needs no torch.
    """
    from bertvision.stages.analyze_folder import analyze_folder

    target = check_file(out) if out is not None else None
    found = analyze_folder(folder, gold, against, disagreements)
    if target is not None:
        write_text(target, page_as_markdown(found.as_page()))
        messages.print(f"analysis: {target}", markup=False)
    if as_json:
        print_json(found.as_dict())
    elif target is None:
        print_page(found.as_page())


@app.command()
@in_one_line
def report(
    records: Annotated[Path, typer.Argument(metavar="RECORDS_DIR", help="A run folder, its records, or results/.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for report.html, report.md and figures.")],
    as_json: Json = False,
) -> None:
    """Draw tables and figures from records alone.

    Writes report.html, report.md and figures, the same bytes each time, and needs no torch.
    """
    from bertvision.records import read_records
    from bertvision.report.page import write_report

    found = read_records(records)
    page = write_report(found, check_folder(out))
    print_records(found, as_json)
    messages.print(f"report: {page}", markup=False)


@app.command()
@in_one_line
def inspect(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A SQuAD .json or .json.gz, sample:dev, or owner/name.")],
    encoder: Annotated[str, typer.Option("--encoder", help="Whose tokenizer cuts the windows.")] = "default",
    overrides: Set = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Count a file's questions, tokens and windows.

    Reads and cuts the file as an experiment with the same settings would, so that surprises come before training.
    """
    from bertvision.stages.inspect_file import inspect_file

    found = inspect_file(data, encoder, overrides or (), progress_for(quiet))
    if as_json:
        print_json(found.as_dict())
        return
    results.print(f"{found.name}: {found.questions:,} questions, {found.windows:,} windows", markup=False)
    print_table(("what", "value"), found.as_rows(), (False, True))
    print_table(("tokens", *found.percentiles), found.length_rows(), (False, *[True] * len(found.percentiles)))


@app.command()
@in_one_line
def plan(config: Config, out: Out = None, overrides: Set = None, quiet: Quiet = False, as_json: Json = False) -> None:
    """Estimate live, kept and stored states.

    Measures encoder, heads, memory and disk for a few seconds, prints what training the heads would take with each
    source of states, for one seed and fraction, and says which one `states: auto` chooses.
    """
    from bertvision.stages.plan_states import COLUMNS, plan_states

    experiment = _experiment(config, overrides)
    planned = plan_states(experiment, _folder(out, experiment), progress_for(quiet))
    if as_json:
        print_json(planned.as_dict())
        return
    results.print(planned.title, markup=False)
    print_table(COLUMNS, planned.as_rows(), (False, *[True] * (len(COLUMNS) - 2), False))
    results.print(textwrap.fill(planned.sentence, 80), markup=False)


@app.command()
@in_one_line
def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help="heads, states or decode.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the record.")] = Path("runs/bench"),
    overrides: Set = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Measure speeds side by side.

    heads: many heads in one pass, against the bare encoder, plain code and a pass for each head. states: live states
    against kept, stored and the papers' padded ones. decode: logits to scored answers, against run_qa's algorithm. In
    turns, after a warm-up; prints ratios and writes a record.
    """
    from bertvision.bench.run import run_bench
    from bertvision.bench_record import write_bench_record
    from bertvision.report.benchmarks import COLUMNS, bench_rows, figure_rows

    record = run_bench(name, overrides or (), progress_for(quiet))
    path = write_bench_record(check_folder(out), record)
    if as_json:
        print_json(record.model_dump(mode="json"))
        return
    results.print(f"{record.name}, {record.variant} on {record.provenance.device}: {record.about}", markup=False)
    print_table(COLUMNS, bench_rows(record), (False, True, True))
    print_table(("number", "value"), figure_rows(record), (False, True))
    messages.print(f"record: {path}", markup=False)


@app.command()
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
    from bertvision.stages.list_heads import list_heads

    sizes = list_heads(encoder, layers, hidden)
    if as_json:
        print_json([size._asdict() for size in sizes.heads])
        return
    results.print(sizes.title, markup=False)
    rows: list[tuple[str, ...]] = []
    for origin, found in groupby(sizes.heads, key=lambda size: size.origin):
        rows.append((origin,))
        for size in found:
            share = "" if size.share is None else f"{size.share:.3f}"
            rows.append((size.name, size.scores, f"{size.trainable:,}", f"{size.total:,}", share))
    print_table(("head", "scores", "trained", "total", "percent"), rows, (False, False, True, True, True))
    results.print(
        "Percent of the encoder; total counts running statistics too. What each reads: docs/method.md", markup=False
    )


def main() -> None:
    """Run the command line."""
    app()


def _run(experiment: "Experiment", out: Path, quiet: bool, as_json: bool) -> list[RunRecord]:
    from bertvision.report.page import write_report
    from bertvision.stages.run import run as run_experiment

    records = run_experiment(experiment, out, progress_for(quiet))
    page = write_report(records, out)
    print_records(records, as_json)
    if not as_json:
        results.print(f"report: {page}", markup=False)
    return records


def _experiment(config: Path, overrides: Sequence[str] | None) -> "Experiment":
    from bertvision.experiment import read_experiment

    return read_experiment(config, overrides or ())


def _program() -> str:
    """Name this program as it can be called from here: it is not on the path of who ran it through make."""
    if shutil.which("bertvision"):
        return "bertvision"
    return "python -m bertvision" if sys.argv[0].endswith("__main__.py") else os.path.relpath(sys.argv[0])


def _folder(out: Path | None, experiment: "Experiment") -> Path:
    return check_folder(out or Path("runs") / experiment.name)


def _print_paths(paths: Sequence[Path], as_json: bool) -> None:
    there = [str(path) for path in paths if path.exists()]
    if as_json:
        print_json(there)
    else:
        results.print("\n".join(there), markup=False)
