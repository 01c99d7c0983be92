"""Records -> what a report says of each experiment, whatever the format it is written in."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bertvision.records import RunRecord, merge_variants
from bertvision.report.beside import Beside
from bertvision.report.costs import costs_note, with_costs
from bertvision.report.differences import difference_tables
from bertvision.report.drawing import Drawing, draw
from bertvision.report.efficiency import COLUMNS, cost_tables
from bertvision.report.gallery import GALLERY, Picture
from bertvision.report.glue import Benchmark, glue_tables
from bertvision.report.hulburd import hulburd_tables
from bertvision.report.measures import measures_of
from bertvision.report.rates import rate_tables
from bertvision.report.renderers import Captioned
from bertvision.report.results import by_experiment
from bertvision.report.score_tables import CALIBRATION, calibration_table, models_table, results_table

READING = (
    "Each row is one model at one fraction: the part of an epoch that the encoder was fine-tuned for before it was "
    "frozen (“given”: not at all). The encoder's row is that encoder with its own output layer; a head reads all of "
    "its layers; a control is what a head has to beat; an ensemble joins the outputs of several models; a baseline "
    "reads nothing. Scores are in percent."
)
MEANINGS = {
    "data": "share of the training data that heads were trained on",
    "seeds": "how many times the row was trained, each from another random start",
    "parameters": "how many numbers were trained and are added to the encoder; rows with the encoder itself in them "
    "count all of it that was trained",
}
SECONDS = {
    "seconds": "training time until the row exists: the fine-tuning up to that fraction, and the one pass that trained "
    "all heads together",
}
NOTHING = Beside()
MODELS = "All models by fraction"
CALIBRATED = "Thresholds and probabilities"
DATA = "Data as they were read"
ENDING = "An empty cell is a score that was never made."
SEVERAL_SEEDS = "A score “a ± b” is the mean over seeds and their standard deviation."


class Shown(NamedTuple):
    """A figure of a chapter; its drawing is None where its records are missing."""

    picture: Picture
    drawing: Drawing | None


class Chapter(NamedTuple):
    """One experiment of a report."""

    experiment: str
    slug: str  # the experiment's name as part of file names and ids
    records: list[RunRecord]
    tables: list[Captioned]
    pictures: list[Shown]


class Report(NamedTuple):
    """All experiments, and what they say together."""

    chapters: list[Chapter]
    glue: list[Benchmark]

    @property
    def title(self) -> str:
        """Name a report after its experiments."""
        return f"Results of {', '.join(chapter.experiment for chapter in self.chapters)}"


def make_report(records: Iterable[RunRecord], beside: Beside = NOTHING) -> Report:
    """Make a chapter for each experiment (variants are one together), and a table of GLUE where there are its tasks."""
    measured = with_costs(records, beside.costs)
    groups = by_experiment(merge_variants(measured))
    slugs = _slugs(list(groups))
    chapters = [
        Chapter(name, slugs[name], group, [*_score_tables(group, beside), *_rates(measured, group)], _pictures(group))
        for name, group in groups.items()
    ]
    return Report(chapters, glue_tables(record for group in groups.values() for record in group))


def figure_path(chapter: Chapter, picture: Picture, ending: str = "svg") -> str:
    """Place a figure's file beside the report."""
    return f"figures/{chapter.slug}-{picture.name}.{ending}"


def meanings(report: Report) -> list[tuple[str, str]]:
    """Explain those columns that the tables have; one that tasks take differently is explained for each."""
    found = [(head, "", text) for head, text in MEANINGS.items()]
    for chapter in report.chapters:
        task = chapter.records[0].task
        found += [(measure.head, task, measure.meaning) for measure in measures_of(chapter.records).columns]
    found += [(measure.head, "", measure.meaning) for measure in CALIBRATION]
    found += [(column.head, "", column.meaning) for column in COLUMNS]
    found += [(head, "", text) for head, text in SECONDS.items()]
    shown = {head for chapter in report.chapters for captioned in chapter.tables for head in captioned.table.header}
    return [
        (head, _joined(found, head)) for head in dict.fromkeys(head for head, _, text in found if text) if head in shown
    ]


def _joined(found: Sequence[tuple[str, str, str]], head: str) -> str:
    tasks_by_text: dict[str, list[str]] = {}
    for each, task, text in found:
        if each == head and text:
            tasks_by_text.setdefault(text, []).append(task)
    if len(tasks_by_text) == 1:
        return next(iter(tasks_by_text))
    return "; ".join(f"{text} ({', '.join(dict.fromkeys(tasks))})" for text, tasks in tasks_by_text.items())


def ending(report: Report) -> str:
    """Explain empty cells, and means where there are any."""
    tables = [captioned.table for chapter in report.chapters for captioned in chapter.tables]
    has_means = any("±" in cell for table in tables for row in table.rows for cell in row)
    return f"{SEVERAL_SEEDS} {ENDING}" if has_means else ENDING


def _score_tables(records: Sequence[RunRecord], beside: Beside) -> list[Captioned]:
    models, calibration = models_table(records), calibration_table(records)
    note = costs_note(records, beside.costs)
    return [
        Captioned(_caption(records), results_table(records), note),
        *([Captioned(MODELS, models)] if models is not None else []),
        *([Captioned(CALIBRATED, calibration)] if calibration is not None else []),
        *hulburd_tables(records, beside.differences, note),
        *difference_tables(records, beside.differences),
        *cost_tables(records, note),
    ]


def _rates(records: Sequence[RunRecord], merged: Sequence[RunRecord]) -> list[Captioned]:
    return rate_tables(records, merged[0].experiment, merged[0].task)  # merging leaves one rate of each row


def _caption(records: Sequence[RunRecord]) -> str:
    tasks = ", ".join(dict.fromkeys(record.task for record in records))
    seeds = sorted({record.seed for record in records})
    return f"Scores on {tasks}, {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


def _pictures(records: Sequence[RunRecord]) -> list[Shown]:
    found = [Shown(picture, draw(picture.figure, records)) for picture in GALLERY]
    return [shown for shown in found if shown.drawing is not None or shown.picture.is_missed(records[0].task)]


def _slugs(names: Sequence[str]) -> dict[str, str]:
    slugs: dict[str, str] = {}
    for number, name in enumerate(names):
        slug = re.sub(r"[^A-Za-z0-9_-]+", "-", name)
        slugs[name] = f"{slug}-{number}" if slug in slugs.values() or not slug.strip("-") else slug
    return slugs
