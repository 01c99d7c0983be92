"""Verbs that judge answers: score and compare them, take them apart, tell how far they can be trusted, join them."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bertvision.cli.console import (
    AllowOutside,
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
    settings_of,
    show_analysis,
)
from bertvision.errors import SettingsError
from bertvision.files import check_folder
from bertvision.tables import Table

Task = Annotated[
    str | None,
    typer.Option("--task", help="As in `bertvision score --help`. [default: the run's, or squad2]", show_default=False),
]
Gold = Annotated[
    str | None,
    typer.Option("--gold", help="The task's file with answers or labels. [default: the run's]", show_default=False),
]


@in_one_line
def score(
    task: Annotated[
        str | None,
        typer.Argument(
            help="squad1, squad2, answerability, cola, sst2, mrpc, qqp, stsb, mnli, qnli, rte, wnli, swag, ner, "
            "classification, multilabel or regression. [default: the run's, or squad2] A run's folder may stand here "
            "alone.",
            show_default=False,
        ),
    ] = None,
    *,
    gold: Gold = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            "--predictions",
            help="JSON: id -> answer, label, number or list of labels or tags; GLUE's .tsv; or a run's folder of them.",
        ),
    ] = None,
    null_odds: Annotated[
        Path | None,
        typer.Option("--null-odds", help="JSON: question id -> odds of no answer; goes with best_spans.json."),
    ] = None,
    na_prob_thresh: Annotated[
        float,
        typer.Option("--na-prob-thresh", help="Odds above this count as no answer; 0 fits bertvision's own odds."),
    ] = 1.0,
    overrides: Set = None,
) -> None:
    """Score predictions as the task's official script does.

    Reads a gold file and a predictions file, prints the scores as JSON, and needs no torch. Predictions in a run folder
    need neither task nor gold file; an own table with others is read with --set data.columns.label=stars.

    Example: bertvision score squad2 --gold dev.json --predictions predictions.json
    """
    if predictions is None and task is not None and Path(task).is_dir():
        predictions, task = Path(task), None
    if predictions is None:
        raise SettingsError("give --predictions: a file of them, or a run's folder")
    from bertvision.evaluate.score import score_file

    scored = score_file(task, gold, predictions, null_odds, na_prob_thresh, settings_of(overrides))
    if scored.note:
        messages.print(scored.note, markup=False)
    print_json(scored.scores)


@in_one_line
def compare(
    one: Annotated[Path, typer.Argument(metavar="A", help="predictions.json, its folder, or OUT: its best model.")],
    other: Annotated[
        Path | None, typer.Argument(metavar="B", help="Another one, for the same examples.", show_default=False)
    ] = None,
    gold: Gold = None,
    task: Task = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric", help="One of the task's scores, such as exact or f1. [default: all]", show_default=False
        ),
    ] = None,
    resamples: Annotated[int, typer.Option("--resamples", help="Of the bootstrap.", min=100)] = 10_000,
    clusters: Annotated[
        str,
        typer.Option(
            "--clusters", help="What is resampled: question (row, sentence), or article, whose questions are alike."
        ),
    ] = "question",
    variants: Annotated[
        bool, typer.Option("--variants", help="A is the run folder of an experiment with variants: compare them all.")
    ] = False,
    against: Annotated[
        str, typer.Option("--against", help="With --variants: the row that all others are compared with.")
    ] = "full",
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Say whether two models differ by more than chance.

    For any task: prints the difference of its scores with a paired-bootstrap interval and p-value and, where answers
    are right or wrong, McNemar's exact test and who is right how often; needs no torch. `analyze --against` lists the
    examples on which they differ. Predictions in a run folder need neither --task nor --gold; an own table with others
    is read with --set data.columns.label=stars.

    With --variants, every row that a report of the run folder A shows is compared with one of them, by the task's main
    score: whole articles of questions, documents of sentences, or rows are resampled, and together with them the
    seeds, paired. F1 of questions is compared at the threshold 0 of "no answer" and, where predictions have
    best_spans.json and null_odds.json, at the best threshold, which is chosen anew in every resample for each row and
    seed. Writes A/differences.json, whose 95% intervals `report` puts into its tables.

    Example: bertvision compare runs/mine runs/other
    """
    from bertvision.evaluate.compare import CompareConfig, compare_files

    config = CompareConfig(metric, clusters, resamples, task=task, settings=settings_of(overrides))
    if variants:
        if other is not None or config != CompareConfig():
            raise SettingsError("--variants compares the rows of one run folder; beside it give --gold and --against")
        _compare_variants(one, gold, against, as_json)
        return
    if other is None:
        raise SettingsError("give two models to compare, A and B, or one run folder with --variants")
    found = compare_files(one, other, gold, config)
    show_analysis(found.as_page(), found.as_dict(), as_json)


def _compare_variants(run: Path, gold: str | None, against: str, as_json: bool) -> None:
    from bertvision.evaluate.compare import compare_folder

    found = compare_folder(run, gold, against)
    if as_json:
        print_json([each.model_dump(mode="json") for each in found.differences])
        return
    print_table(found.as_table())
    messages.print(f"differences: {found.path}", markup=False)


@in_one_line
def analyze(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="OUT/predictions/FRACTION/ROW, OUT, or of `predict --out`; with --layers a model."
        ),
    ],
    gold: Gold = None,
    task: Task = None,
    against: Annotated[Path | None, typer.Option("--against", metavar="DIR", help="Another model's folder.")] = None,
    disagreements: Annotated[
        int, typer.Option("--disagreements", metavar="N", help="With --against: show the first N.", min=0)
    ] = 10,
    layers: Annotated[
        bool, typer.Option("--layers", help="Which layer speaks for an answer to the questions of --gold.")
    ] = False,
    overrides: Set = None,
    allow_outside: AllowOutside = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Show where a model is right and where not.

    Questions: scores by question type, question word, answer and context; what the errors are; whether the second most
    likely answer would have been right. Other tasks: by class, label or entity type, what is taken for what, errors by
    tenths of the gold numbers. With --against, what sets two models apart. Predictions in a run folder need neither
    --task nor --gold; OUT is its best model's. Needs no torch.

    With --layers, the scores of a head that sums over layers are taken apart, exactly: what each layer adds to the best
    span, to the gold span and to no answer, as means over the questions of a file (answers in it are optional); and
    which layer tells answerable questions apart.

    Example: bertvision analyze runs/mine --against runs/other
    """
    if layers:
        _analyze_layers(folder, gold, settings_of(overrides), quiet, allow_outside, as_json)
        return
    from bertvision.evaluate.score import analyze_folder

    found = analyze_folder(folder, gold, against, disagreements, task, settings_of(overrides))
    show_analysis(found.as_page(), found.as_dict(), as_json)


def _analyze_layers(
    model: Path, gold: str | None, settings: dict[str, Any], quiet: bool, allow_outside: bool, as_json: bool
) -> None:
    if gold is None:
        raise SettingsError("--layers reads questions: give --gold FILE, a SQuAD .json or .json.gz")
    from bertvision.serving.layers import layers_of_file

    found = layers_of_file(model, gold, settings, progress_for(quiet), allow_outside=allow_outside)
    show_analysis(found.as_page(), found.as_dict(), as_json)


@in_one_line
def calibrate(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="DIR", help="With --data, a MODEL_DIR or checkpoint; else OUT/predictions/FRACTION/ROW."
        ),
    ],
    gold: Annotated[
        str | None, typer.Option("--gold", metavar="FILE", help="Of predictions: the SQuAD file with the answers.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="FILE", help="Of a model: questions with answers that it did not learn from."),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Of a model: write calibration.json, which load and predict use.")
    ] = False,
    min_accuracy: Annotated[
        float | None,
        typer.Option(
            "--min-accuracy",
            metavar="SHARE",
            help="Of a model: abstain so often that this share of its answers is right, such as 0.9.",
        ),
    ] = None,
    allow_outside: AllowOutside = False,
    held_out: Annotated[
        Path | None,
        typer.Option("--held-out", metavar="DIR", help="The model's answers to other questions, for tuning."),
    ] = None,
    held_out_gold: Annotated[
        str | None, typer.Option("--held-out-gold", metavar="FILE", help="Those questions with their answers.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Tune the null threshold and probabilities.

    Of a model, on questions of your own: --data FILE shows scores and reliability before and after, and with --write
    `ask`, `serve`, `load` and `predict` abstain accordingly: for the best F1, or (--min-accuracy) so that answers which
    are given are exactly right that often, on other questions of this kind with a probability of 90%. Of predictions
    (--gold), on held-out answers: those of the run folder (data.held_out), those that are given, or else one half of
    the articles for the other half; nothing is written, and torch is not needed.

    Example: bertvision calibrate runs/mine --data my-questions.json --write
    """
    if gold is not None and data is None and not write and min_accuracy is None:
        from bertvision.evaluate.calibrate import calibrate_folder

        found = calibrate_folder(Path(folder), gold, held_out, held_out_gold)
        show_analysis(found.as_page(), found.as_dict(), as_json)
    elif data is not None and (gold, held_out, held_out_gold) == (None, None, None):
        from bertvision.serving.calibrate import calibrate_model

        fitted = calibrate_model(
            folder,
            data,
            min_accuracy=min_accuracy,
            write=write,
            allow_outside=allow_outside,
            progress=progress_for(quiet),
        )
        show_analysis(fitted.as_page(), fitted.as_dict(), as_json)
    else:
        raise SettingsError(
            "give a model with --data FILE (and --min-accuracy, --write), or predictions with --gold FILE"
        )


@in_one_line
def ensemble(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="OUT/predictions/FRACTION/ROW, or of `predict --out`.")
    ],
    data: Annotated[str, typer.Option("--data", help="The file that they answered.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the ensemble's answers.")],
    task: Task = None,
    how: Annotated[str, typer.Option("--how", help="max (the papers' way), mean, logits or weighted.")] = "max",
    weights: Annotated[str | None, typer.Option("--weights", help="One for each DIR, such as 0.6,0.4.")] = None,
    held_out: Annotated[
        list[Path] | None,
        typer.Option("--held-out", metavar="DIR", help="For each DIR, its model's answers to other examples."),
    ] = None,
    held_out_data: Annotated[
        str | None, typer.Option("--held-out-data", help="Those examples: weights follow the scores on them.")
    ] = None,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Combine the answers of several models.

    Of any task, also of different runs. Questions: token by token where the models share tokenizer and windows,
    otherwise by the answers' characters. Other tasks: by their probabilities (numbers by their mean, tags by votes).
    Writes what `predict` writes, and ensemble.json; prints the scores of each model and of all together. The run that
    predictions lie in says how own tables are read; of others settings do, such as --set data.columns.label=stars.

    Example: bertvision ensemble one/answers two/answers --data dev.json --out both
    """
    from bertvision.evaluate.ensemble import choose_way, ensemble_folders

    way = choose_way(how, weights, held_out or (), held_out_data)
    made = ensemble_folders(folders, data, check_folder(out), way, settings_of(overrides), task)
    if as_json:
        print_json({**made.as_dict(), "out": str(out)})
        return
    results.print(f"{len(made.predictions):,} {made.nouns}, combined by {made.by}; predictions in {out}", markup=False)
    if made.scores is not None:
        header, *rows = made.as_table()
        print_table(Table("", header, tuple(rows), made.note))


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

    Example: bertvision report runs/mine --out page
    """
    from bertvision.records import read_differences, read_mistakes, read_records
    from bertvision.report.page import write_report

    found = read_records(records)
    page = write_report(found, check_folder(out), read_differences(records), read_mistakes(records))
    print_records(found, as_json)
    messages.print(f"report: {page}", markup=False)
