"""GLUE: records of several of its tasks -> one table of each encoder as GLUE shows them, with their averages."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple, get_args

from bertvision.records import ResultKind, RunRecord
from bertvision.report.chapters import Chapter
from bertvision.report.measures import TASKS
from bertvision.report.results import Result, full_results, largest_fraction, trained
from bertvision.tables import Statistic, Table, score_cell, statistic

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
