"""The verb that scores anybody's predictions."""

from pathlib import Path
from typing import Annotated

import typer

from bertvision.cli.console import in_one_line, messages, print_json
from bertvision.cli.options import Set


@in_one_line
def score(
    task: Annotated[
        str,
        typer.Argument(
            help="squad1, squad2, answerability, cola, sst2, mrpc, qqp, stsb, mnli, qnli, rte, wnli, swag, ner, "
            "classification, multilabel or regression."
        ),
    ],
    gold: Annotated[str, typer.Option("--gold", help="The task's file with answers or labels.")],
    predictions: Annotated[
        Path,
        typer.Option(
            "--predictions", help="JSON: id -> answer, label, number or list of labels or tags; or GLUE's .tsv."
        ),
    ],
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
    """Print what the task's official script prints.

    Reads a gold file and a predictions file, prints the scores as JSON, and needs no torch. Own tables are read with
    the settings that they were trained with, such as --set data.columns.label=stars.
    """
    from bertvision.evaluate.score import score_file
    from bertvision.settings import with_overrides

    settings = with_overrides({}, overrides or ())
    scored = score_file(task, gold, predictions, null_odds, na_prob_thresh, settings)
    if scored.note:
        messages.print(scored.note, markup=False)
    print_json(scored.scores)
