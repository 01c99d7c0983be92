"""Records -> what a report says of each experiment, whatever the format it is written in."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from bertvision.records import DifferenceRecord, MistakesRecord, RunRecord, merge_variants
from bertvision.report.answer_tables import ExampleList, confusion_tables, example_lists
from bertvision.report.headline import headline
from bertvision.report.pictures import Drawing, Picture, can_draw
from bertvision.report.rates import rate_tables
from bertvision.report.results import Evidence, by_experiment
from bertvision.report.score_tables import difference_tables, score_tables
from bertvision.tables import Table, without_empty_columns

READING = (
    "Each row is one model at one fraction: the part of an epoch that the encoder was fine-tuned for before it was "
    "frozen (“given”: not at all). The encoder's row is that encoder with its own output layer; a head reads all of "
    "its layers; a control is what a head has to beat; an ensemble joins the outputs of several models; a baseline "
    "reads nothing. Scores are in percent."
)
ENDING = "An empty cell is a score that was never made."
SEVERAL_SEEDS = "A score “a ± b” is the mean over seeds and their standard deviation."


class ShownPicture(NamedTuple):
    """A figure of a chapter; its drawing is None where its records are missing."""

    picture: Picture
    drawing: Drawing | None


class Chapter(NamedTuple):
    """One experiment of a report, or tables of several together, which have no records and figures of their own."""

    title: str
    slug: str  # the title as part of file names and ids
    tables: list[Table]
    records: list[RunRecord] = []
    pictures: list[ShownPicture] = []
    problem: str = ""  # what keeps it from having tables
    headline: list[str] = []  # sentences
    examples: list[ExampleList] = []


class Contents(NamedTuple):
    """What a report is made of: tables and figures of every experiment, in order, and chapters of several together."""

    tables: tuple[Callable[[Evidence], list[Table]], ...] = (
        *(score_tables, confusion_tables, difference_tables, rate_tables),
    )
    overviews: tuple[Callable[[Sequence[RunRecord]], list[Chapter]], ...] = ()
    pictures: tuple[Picture, ...] | None = None  # None: those of `gallery`


class Report(NamedTuple):
    """All experiments, and before them what they say together."""

    overviews: list[Chapter]
    chapters: list[Chapter]

    @property
    def title(self) -> str:
        """Return its title: the names of its experiments."""
        return f"Results of {', '.join(chapter.title for chapter in self.chapters)}"


PLAIN = Contents()


def make_report(
    records: Iterable[RunRecord],
    differences: Sequence[DifferenceRecord] = (),
    mistakes: Sequence[MistakesRecord] = (),
    contents: Contents = PLAIN,
) -> Report:
    """Make a chapter for each experiment (variants are one together), and those of several together."""
    found = list(records)
    groups = by_experiment(merge_variants(found))
    slugs = _slugs(list(groups))
    chapters = []
    for name, group in groups.items():
        evidence = Evidence(group, _tried(found, group[0]), differences)
        tables = [without_empty_columns(table) for part in contents.tables for table in part(evidence)]
        chapters.append(
            Chapter(
                title=name,
                slug=slugs[name],
                tables=tables,
                records=group,
                pictures=_pictures(group, contents.pictures),
                headline=headline(group),
                examples=example_lists(group, mistakes),
            )
        )
    merged = [record for group in groups.values() for record in group]
    return Report([chapter for overview in contents.overviews for chapter in overview(merged)], chapters)


def figure_path(chapter: Chapter, picture: Picture, ending: str = "svg") -> str:
    """Return the place of a figure's file beside the report."""
    return f"figures/{chapter.slug}-{picture.name}.{ending}"


def meanings(report: Report) -> list[tuple[str, str]]:
    """Explain the columns of the tables; one that tasks take differently is explained for each."""
    found: dict[str, dict[str, list[str]]] = {}
    for chapter in report.chapters:
        for column in (column for table in chapter.tables for column in table.full_columns if column.meaning):
            found.setdefault(column.head, {}).setdefault(column.meaning, []).append(chapter.records[0].task)
    return [(head, _joined(tasks_by_meaning)) for head, tasks_by_meaning in found.items()]


def ending(report: Report) -> str:
    """Explain empty cells, and means where there are any."""
    tables = [table for chapter in report.chapters for table in chapter.tables]
    has_means = any("±" in cell for table in tables for row in table.texts for cell in row)
    return f"{SEVERAL_SEEDS} {ENDING}" if has_means else ENDING


def _joined(tasks_by_meaning: dict[str, list[str]]) -> str:
    if len(tasks_by_meaning) == 1:
        return next(iter(tasks_by_meaning))
    return "; ".join(f"{text} ({', '.join(dict.fromkeys(tasks))})" for text, tasks in tasks_by_meaning.items())


def _tried(records: Iterable[RunRecord], of: RunRecord) -> list[RunRecord]:
    """Return an experiment's records at every rate: merging leaves one of each row."""
    return [each for each in records if (each.experiment, each.task) == (of.experiment, of.task)]


def _pictures(records: Sequence[RunRecord], pictures: Sequence[Picture] | None) -> list[ShownPicture]:
    """Draw the figures; none of them without matplotlib."""
    if not can_draw():
        return []
    from bertvision.report.drawing import draw
    from bertvision.report.gallery import GALLERY

    pictures = GALLERY if pictures is None else pictures
    found = [ShownPicture(picture, draw(picture.figure, records)) for picture in pictures]
    return [shown for shown in found if shown.drawing is not None or shown.picture.is_missed(records[0].task)]


def _slugs(names: Sequence[str]) -> dict[str, str]:
    slugs: dict[str, str] = {}
    for number, name in enumerate(names):
        slug = re.sub(r"[^A-Za-z0-9_-]+", "-", name)
        slugs[name] = f"{slug}-{number}" if slug in slugs.values() or not slug.strip("-") else slug
    return slugs
