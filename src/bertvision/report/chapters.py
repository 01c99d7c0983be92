"""Records -> what a report says of each experiment, whatever the format it is written in.

And of several tasks of GLUE one table for each encoder, as GLUE shows them, with their averages.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple, get_args

from bertvision.records import DifferenceRecord, MistakesRecord, ResultKind, RunRecord, merge_variants
from bertvision.report.headline import headline
from bertvision.report.measures import TASKS
from bertvision.report.pictures import Drawing, Picture, can_draw
from bertvision.report.results import Evidence, Result, by_experiment, full_results, largest_fraction, trained
from bertvision.report.tables import (
    ExampleList,
    confusion_tables,
    difference_tables,
    example_lists,
    rate_tables,
    score_tables,
)
from bertvision.tables import Statistic, Table, score_cell, statistic, without_empty_columns

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


# In GLUE's order; where a task has two scores, their mean counts.
GLUE = {
    "cola": "CoLA",
    "sst2": "SST-2",
    "mrpc": "MRPC",
    "stsb": "STS-B",
    "qqp": "QQP",
    "mnli": "MNLI",
    "qnli": "QNLI",
    "rte": "RTE",
    "wnli": "WNLI",
}
WNLI = "wnli"
TITLE, SLUG = "GLUE", "glue"
KINDS: tuple[ResultKind, ...] = get_args(ResultKind)


class GlueModel(NamedTuple):
    """A row of the table: one model's results by task."""

    kind: ResultKind
    name: str
    by_task: dict[str, Result]


def glue_chapters(records: Iterable[RunRecord]) -> list[Chapter]:
    """Make a table for each encoder that has records of two or more GLUE tasks."""
    by_encoder: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.task in GLUE:
            by_encoder.setdefault(_encoder_name(record), []).append(record)
    several = {name: group for name, group in by_encoder.items() if len({record.task for record in group}) > 1}
    return [_chapter(name, several[name]) for name in sorted(several)]


def _chapter(encoder: str, records: Sequence[RunRecord]) -> Chapter:
    experiments = {task: sorted({each.experiment for each in records if each.task == task}) for task in GLUE}
    for task, names in experiments.items():
        if len(names) > 1:
            problem = f"No table of GLUE: {task} has records of {len(names)} experiments ({', '.join(names)})."
            return Chapter(TITLE, SLUG, [], problem=f"{problem} Report folders with one experiment for each task.")
    tasks = [task for task, names in experiments.items() if names]
    title = f"GLUE, dev sets, {encoder or 'encoder'}, in brackets the fraction of an epoch that it was tuned for"
    return Chapter(TITLE, SLUG, [_table(title, _models(records, tasks), tasks)])


def _encoder_name(record: RunRecord) -> str:
    encoder = record.config.get("encoder", "")
    return str(encoder.get("name", "") if isinstance(encoder, dict) else encoder)


def _models(records: Sequence[RunRecord], tasks: Sequence[str]) -> list[GlueModel]:
    """Join each model's results, of every task at the largest fraction that it was tuned for."""
    models: dict[str, GlueModel] = {}
    for task in tasks:
        results = full_results([record for record in records if record.task == task])
        baselines = [result for result in results if result.kind == "baseline"]
        for result in baselines + largest_fraction(trained(results)):
            models.setdefault(result.name, GlueModel(result.kind, result.name, {})).by_task[task] = result
    places = {name: place for place, name in enumerate(models)}
    return sorted(models.values(), key=lambda model: (KINDS.index(model.kind), places[model.name]))


def _table(title: str, models: Sequence[GlueModel], tasks: Sequence[str]) -> Table:
    parts = [tasks, *([[task for task in tasks if task != WNLI]] if WNLI in tasks else [])]
    heads = [_task_head(task, models) for task in tasks] + [_average_head(part) for part in parts]
    return Table(title, ("model", *heads), tuple(_cells(model, tasks, parts) for model in models))


def _task_head(task: str, models: Sequence[GlueModel]) -> str:
    tuned = next((each.by_task[task] for each in models if task in each.by_task and each.kind != "baseline"), None)
    fraction = f" ({tuned.fraction_text})" if tuned is not None else ""
    return f"{GLUE[task]}{fraction}: {' / '.join(measure.title for measure in TASKS[task])}"


def _average_head(tasks: Sequence[str]) -> str:
    whole = len(GLUE) if WNLI in tasks else len(GLUE) - 1
    head = "average" if len(tasks) == whole else f"average of {len(tasks)}"
    return head if WNLI in tasks else f"{head} without WNLI"


def _cells(model: GlueModel, tasks: Sequence[str], parts: Sequence[Sequence[str]]) -> tuple[str, ...]:
    scores = [_task_text(task, model.by_task.get(task)) for task in tasks]
    return (model.name, *scores, *(_average_text(model, part) for part in parts))


def _task_text(task: str, result: Result | None) -> str:
    keys = [measure.key for measure in TASKS[task]]
    texts = [] if result is None else [str(score_cell(result.scores.get(key))) for key in keys]
    return " / ".join(texts) if all(texts) else ""


def _average_text(model: GlueModel, tasks: Sequence[str]) -> str:
    """Write an average; where this model lacks some of the tasks, with how many it is over."""
    found = [by_seed for task in tasks if (by_seed := _worth_by_seed(task, model.by_task.get(task)))]
    text = str(score_cell(_average(found)))
    return text if len(found) in (0, len(tasks)) else f"{text} (of {len(found)})"


def _worth_by_seed(task: str, result: Result | None) -> dict[int, float]:
    keys = [measure.key for measure in TASKS[task]]
    return {
        record.seed: fmean(record.scores[key] for key in keys)
        for record in (result.records if result is not None else ())
        if all(key in record.scores for key in keys)
    }


def _average(tasks: Sequence[dict[int, float]]) -> Statistic | None:
    """Average over tasks seed by seed; where tasks have different seeds there is no spread."""
    if not tasks:
        return None
    if all(by_seed.keys() == tasks[0].keys() for by_seed in tasks):
        return statistic([fmean(by_seed[seed] for by_seed in tasks) for seed in tasks[0]])
    return Statistic(fmean(fmean(by_seed.values()) for by_seed in tasks), None)
