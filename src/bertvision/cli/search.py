"""The verb that searches for the settings of an experiment."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from bertvision.cli.console import (
    Config,
    Json,
    Quiet,
    Set,
    in_one_line,
    print_json,
    print_table,
    progress_for,
    results,
)
from bertvision.files import check_folder


@in_one_line
def search(
    config: Config,
    out: Annotated[
        Path | None, typer.Option("--out", help="Its folder. [default: runs/NAME-search]", show_default=False)
    ] = None,
    trials: Annotated[int | None, typer.Option("--trials", min=1, help="How many in all. [default: 48]")] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0.01, help="Begin no further trials after these.")
    ] = None,
    overrides: Set = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Search for the best settings on held-out rows.

    Tries heads, rates, widths, layers and more (or, with search.target=finetune, BERT's grid), as the experiment's
    `search` says. Heads are trained in groups that share one pass over the states. TPE chooses, hopeless trials are
    pruned, and all are scored on held-out rows; the dev set is read at the end, for the best. Writes OUT/best.yaml
    (which `run` takes), best/, search.json, trials.csv and importance.png. When it was stopped, the same command goes
    on. Needs 'bertvision[search]'.
    """
    from bertvision.experiment import read_experiment

    experiment = read_experiment(config, overrides or ())
    from bertvision.steps.data import read_search_data

    folder = check_folder(Path("runs") / f"{experiment.title}-search" if out is None else out)
    progress = progress_for(quiet)
    data = read_search_data(experiment, progress)  # before torch is imported: a missing file is told at once
    from bertvision.steps.search import search as run_search

    record = run_search(experiment, folder, progress, trials=trials, minutes=minutes, data=data)
    from bertvision.report.searches import trials_table, write_search_figure

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
