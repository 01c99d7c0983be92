"""Verbs that judge answers: compare them, take them apart, and tell how far they can be trusted."""

from pathlib import Path
from typing import Annotated

import typer

from bertvision.cli.console import in_one_line, print_json, print_page, show_page
from bertvision.cli.options import Json, Set
from bertvision.errors import SettingsError
from bertvision.files import check_file

Task = Annotated[str, typer.Option("--task", help="What the predictions are of, as in `bertvision score --help`.")]


@in_one_line
def compare(
    one: Annotated[Path, typer.Argument(metavar="A", help="A predictions.json, or a folder that holds one.")],
    other: Annotated[Path, typer.Argument(metavar="B", help="Another one, for the same examples.")],
    gold: Annotated[str, typer.Option("--gold", help="The task's file with answers or labels.")],
    task: Task = "squad2",
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric", help="One of the task's scores, such as exact or f1. [default: all]", show_default=False
        ),
    ] = None,
    resamples: Annotated[int, typer.Option("--resamples", help="Of the bootstrap.", min=100)] = 10_000,
    seed: Annotated[int, typer.Option("--seed", help="Of the bootstrap.", min=0)] = 1,
    clusters: Annotated[
        str,
        typer.Option(
            "--clusters", help="What is resampled: question (row, sentence), or article, whose questions are alike."
        ),
    ] = "question",
    disagreements: Annotated[
        int, typer.Option("--disagreements", metavar="N", help="Show the first N on which they differ.", min=0)
    ] = 0,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Tell whether two models' scores differ by chance.

    For any task: prints the difference of its scores with a paired-bootstrap interval and p-value and, where answers
    are right or wrong, McNemar's exact test and who is right how often; needs no torch. Own tables are read with the
    settings that they were trained with, such as --set data.columns.label=stars.
    """
    from bertvision.evaluate.compare import CompareConfig, compare_files
    from bertvision.settings import with_overrides

    settings = with_overrides({}, overrides or ())
    config = CompareConfig(metric, clusters, resamples, seed, disagreements, task, settings)
    found = compare_files(one, other, gold, config)
    if as_json:
        print_json(found.as_dict())
    else:
        print_page(found.as_page())


@in_one_line
def analyze(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="OUT/predictions/FRACTION/ROW, or of `predict --out`.")],
    gold: Annotated[str, typer.Option("--gold", help="The task's file with answers or labels.")],
    task: Task = "squad2",
    against: Annotated[Path | None, typer.Option("--against", metavar="DIR", help="Another model's folder.")] = None,
    disagreements: Annotated[
        int, typer.Option("--disagreements", metavar="N", help="With --against: show the first N.", min=0)
    ] = 10,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.md", help="Write Markdown there instead of printing.")
    ] = None,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Show where a model is right and where not.

    Questions: scores by question type, question word, answer and context; what the errors are; whether the second most
    likely answer would have been right. Other tasks: by class, label or entity type, what is taken for what, errors by
    tenths of the gold numbers. With --against, what sets two models apart. Needs no torch.
    """
    from bertvision.evaluate.analyze import analyze_folder
    from bertvision.settings import with_overrides

    target = check_file(out) if out is not None else None
    settings = with_overrides({}, overrides or ())
    found = analyze_folder(folder, gold, against, disagreements, task, settings)
    show_page(found.as_page(), found.as_dict(), target, "analysis", as_json)


@in_one_line
def calibrate(
    folder: Annotated[
        str,
        typer.Argument(metavar="DIR", help="A MODEL_DIR with --data; OUT/predictions/FRACTION/ROW or `predict --out`."),
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
    device: Annotated[str, typer.Option("--device", help="Of a model: auto, cpu or cuda.")] = "auto",
    held_out: Annotated[
        Path | None,
        typer.Option("--held-out", metavar="DIR", help="The model's answers to other questions, for tuning."),
    ] = None,
    held_out_gold: Annotated[
        str | None, typer.Option("--held-out-gold", metavar="FILE", help="Those questions with their answers.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.md", help="Write Markdown there instead of printing.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Tune the null threshold and probabilities.

    Of a model, on questions of your own: --data FILE shows scores and reliability before and after, and with --write
    `ask`, `serve`, `load` and `predict` abstain accordingly. Of predictions (--gold), on held-out answers: those of the
    run folder (data.held_out), those that are given, or else one half of the articles for the other half; nothing is
    written, and torch is not needed.
    """
    target = check_file(out) if out is not None else None
    if gold is not None and data is None and not write:
        from bertvision.evaluate.calibrate import calibrate_folder

        found = calibrate_folder(Path(folder), gold, held_out, held_out_gold)
        show_page(found.as_page(), found.as_dict(), target, "calibration", as_json)
    elif data is not None and (gold, held_out, held_out_gold) == (None, None, None):
        from bertvision.serving.calibrate_model import calibrate_model

        fitted = calibrate_model(folder, data, write=write, device=device)
        show_page(fitted.as_page(), fitted.as_dict(), target, "calibration", as_json)
    else:
        raise SettingsError("give a model with --data FILE (and --write), or predictions with --gold FILE")
