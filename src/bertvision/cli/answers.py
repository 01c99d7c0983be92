"""Verbs that give answers: a model's, and several models' joined."""

from pathlib import Path
from typing import Annotated

import typer

from bertvision.cli.console import in_one_line, print_json, print_table, progress_for, results
from bertvision.cli.options import Json, Quiet, Set
from bertvision.files import check_folder
from bertvision.tables import Table


@in_one_line
def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL_DIR", help="OUT/heads/FRACTION/HEAD, OUT/encoder/FRACTION or default.")
    ],
    data: Annotated[
        str, typer.Option("--data", help="A file as the model's task has them; answers in it are optional.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for predictions.json and what goes with it.")],
    overrides: Set = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Answer a file with a trained model, whatever its task.

    For questions it writes predictions.json, nbest_predictions.json and null_odds.json as run_qa does, and
    logits.safetensors; for other tasks predictions.json, probabilities.json, GLUE's file for its test sets and CoNLL
    columns. Prints the scores where the file has answers.
    """
    from bertvision.settings import with_overrides
    from bertvision.steps.predict_file import predict_file

    answered = predict_file(model, data, check_folder(out), with_overrides({}, overrides or ()), progress_for(quiet))
    if as_json:
        print_json({"examples": len(answered.predictions), "out": str(out), "scores": answered.scores})
        return
    results.print(f"{answered.summary}; answers in {out / 'predictions.json'}", markup=False)
    if answered.scores is not None:
        print_json(answered.scores)


@in_one_line
def ensemble(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="OUT/predictions/FRACTION/ROW, or of `predict --out`.")
    ],
    data: Annotated[str, typer.Option("--data", help="The file that they answered.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the ensemble's answers.")],
    task: Annotated[
        str, typer.Option("--task", help="What the predictions are of, as in `bertvision score --help`.")
    ] = "squad2",
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
    """Combine several models' answers into one's.

    Of any task, also of different runs. Questions: token by token where the models share tokenizer and windows,
    otherwise by the answers' characters. Other tasks: by their probabilities (numbers by their mean, tags by votes).
    Writes what `predict` writes, and ensemble.json; prints the scores of each model and of all together. Own tables are
    read with the settings that they were trained with, such as --set data.columns.label=stars.
    """
    from bertvision.evaluate.ensemble import ensemble_folders
    from bertvision.evaluate.ensemble_weights import choose_way
    from bertvision.settings import with_overrides

    way = choose_way(how, weights, held_out or (), held_out_data)
    made = ensemble_folders(folders, data, check_folder(out), way, with_overrides({}, overrides or ()), task)
    if as_json:
        print_json({**made.as_dict(), "out": str(out)})
        return
    results.print(f"{len(made.predictions):,} {made.nouns}, combined by {made.by}; answers in {out}", markup=False)
    if made.scores is not None:
        header, *rows = made.as_table()
        print_table(Table("", header, tuple(rows)))
