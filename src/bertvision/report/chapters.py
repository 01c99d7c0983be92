"""Records -> what a report says of each experiment, whatever the format it is written in."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bertvision.records import RunRecord
from bertvision.report.gallery import GALLERY, Picture
from bertvision.report.rows import by_experiment
from bertvision.report.tables import Table, models_table, results_table

READING = (
    "Each row is one model at one fraction: the part of an epoch that the encoder was fine-tuned for before it was "
    "frozen (“given”: not at all). The encoder's row is that encoder with its own output layer; a head reads all of "
    "its layers; a control is what a head has to beat; an ensemble joins the outputs of several models. Scores are in "
    "percent."
)
MEANINGS = {
    "seeds": "how many times the row was trained, each from another random start",
    "parameters": "how many numbers were trained and are added to the encoder; rows with the encoder itself in them "
    "count all of it",
    "EM": "share of questions whose answer is exactly right",
    "F1": "the same with credit for partly right answers",
    "best F1": "F1 at the threshold for “no answer” that suits these very questions best, so it flatters every row; EM "
    "and F1 are at the experiment's own threshold (answers.null_threshold, 0 unless set)",
    "span F1": "F1 over the questions that have an answer, taking the best one even where the model would stay silent; "
    "it tells finding answers from knowing when there is none",
    "seconds": "training time until the row exists: the fine-tuning up to that fraction, and the one pass that trained "
    "all heads together",
}
MODELS = "All models by fraction; best: at the threshold that suits these very questions best"
ENDING = "An empty cell is a score that was never made."
SEVERAL_SEEDS = "A score “a ± b” is the mean over seeds and their standard deviation."


class Chapter(NamedTuple):
    """One experiment of a report."""

    experiment: str
    slug: str  # the experiment's name as part of file names and ids
    records: list[RunRecord]
    table: Table
    models: Table | None  # the fractions side by side, where there are several
    pictures: list[tuple[Picture, str | None]]  # with the drawing, or None where its records are missing


def make_chapters(records: Iterable[RunRecord]) -> list[Chapter]:
    """Make a chapter for each experiment."""
    groups = by_experiment(records)
    slugs = _slugs(list(groups))
    return [
        Chapter(
            name,
            slugs[name],
            group,
            results_table(group),
            models_table(group),
            [(picture, picture.draw(group)) for picture in GALLERY],
        )
        for name, group in groups.items()
    ]


def title_of(chapters: Sequence[Chapter]) -> str:
    """Name a report after its experiments."""
    return f"Results of {', '.join(chapter.experiment for chapter in chapters)}"


def caption_of(chapter: Chapter) -> str:
    """Say what a chapter's table holds."""
    tasks = ", ".join(dict.fromkeys(record.task for record in chapter.records))
    seeds = sorted({record.seed for record in chapter.records})
    return f"Scores on {tasks}, {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


def figure_path(chapter: Chapter, picture: Picture) -> str:
    """Place a figure's file beside the report."""
    return f"figures/{chapter.slug}-{picture.name}.svg"


def meanings(chapters: Sequence[Chapter]) -> list[tuple[str, str]]:
    """Explain those columns that the tables have."""
    shown = {head for chapter in chapters for head in chapter.table.header}
    return [(head, text) for head, text in MEANINGS.items() if head in shown]


def ending(chapters: Sequence[Chapter]) -> str:
    """Explain empty cells, and means where there are any."""
    cells = {cell for chapter in chapters for row in chapter.table.rows for cell in row}
    return f"{SEVERAL_SEEDS} {ENDING}" if any("±" in cell for cell in cells) else ENDING


def _slugs(names: Sequence[str]) -> dict[str, str]:
    slugs: dict[str, str] = {}
    for number, name in enumerate(names):
        slug = re.sub(r"[^A-Za-z0-9_-]+", "-", name)
        slugs[name] = f"{slug}-{number}" if slug in slugs.values() or not slug.strip("-") else slug
    return slugs
