"""Records of several GLUE tasks -> one table as GLUE shows them, with their averages."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple, get_args

from bertvision.records import ResultKind, RunRecord
from bertvision.report.measures import TASKS
from bertvision.report.renderers import Alignment, Table, score_text
from bertvision.report.results import Row, Statistic, full_rows, largest_fraction, statistic, trained

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
KINDS: tuple[ResultKind, ...] = get_args(ResultKind)


class Benchmark(NamedTuple):
    """One encoder's table, or what keeps it from being one."""

    caption: str
    table: Table | None
    problem: str = ""


class Line(NamedTuple):
    """A row of the table: one model's rows by task."""

    kind: ResultKind
    name: str
    by_task: dict[str, Row]


def glue_tables(records: Iterable[RunRecord]) -> list[Benchmark]:
    """Make a table for each encoder that has records of two or more GLUE tasks."""
    by_encoder: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.task in GLUE:
            by_encoder.setdefault(_encoder_name(record), []).append(record)
    several = {name: group for name, group in by_encoder.items() if len({record.task for record in group}) > 1}
    return [_benchmark(name, several[name]) for name in sorted(several)]


def _benchmark(encoder: str, records: Sequence[RunRecord]) -> Benchmark:
    caption = f"GLUE, dev sets, {encoder or 'encoder'}, in brackets the fraction of an epoch that it was tuned for"
    experiments = {task: sorted({each.experiment for each in records if each.task == task}) for task in GLUE}
    for task, names in experiments.items():
        if len(names) > 1:
            problem = f"No table of GLUE: {task} has records of {len(names)} experiments ({', '.join(names)})."
            return Benchmark(caption, None, f"{problem} Report folders with one experiment for each task.")
    tasks = [task for task, names in experiments.items() if names]
    return Benchmark(caption, _table(_lines(records, tasks), tasks))


def _encoder_name(record: RunRecord) -> str:
    encoder = record.config.get("encoder", "")
    return str(encoder.get("name", "") if isinstance(encoder, dict) else encoder)


def _lines(records: Sequence[RunRecord], tasks: Sequence[str]) -> list[Line]:
    """Join each model's rows, of every task at the largest fraction that it was tuned for."""
    lines: dict[str, Line] = {}
    for task in tasks:
        rows = full_rows([record for record in records if record.task == task])
        baselines = [row for row in rows if row.kind == "baseline"]
        for row in baselines + largest_fraction(trained(rows)):
            lines.setdefault(row.name, Line(row.kind, row.name, {})).by_task[task] = row
    places = {name: place for place, name in enumerate(lines)}
    return sorted(lines.values(), key=lambda line: (KINDS.index(line.kind), places[line.name]))


def _table(lines: Sequence[Line], tasks: Sequence[str]) -> Table:
    number: Alignment = "right"
    parts = [tasks, *([[task for task in tasks if task != WNLI]] if WNLI in tasks else [])]
    heads = [_task_head(task, lines) for task in tasks] + [_average_head(part) for part in parts]
    return Table(
        header=("model", *heads),
        alignments=("left", *[number] * len(heads)),
        rows=tuple(_cells(line, tasks, parts) for line in lines),
    )


def _task_head(task: str, lines: Sequence[Line]) -> str:
    tuned = next((line.by_task[task] for line in lines if task in line.by_task and line.kind != "baseline"), None)
    fraction = f" ({tuned.fraction_text})" if tuned is not None else ""
    return f"{GLUE[task]}{fraction}: {' / '.join(measure.title for measure in TASKS[task].columns)}"


def _average_head(tasks: Sequence[str]) -> str:
    whole = len(GLUE) if WNLI in tasks else len(GLUE) - 1
    head = "average" if len(tasks) == whole else f"average of {len(tasks)}"
    return head if WNLI in tasks else f"{head} without WNLI"


def _cells(line: Line, tasks: Sequence[str], parts: Sequence[Sequence[str]]) -> tuple[str, ...]:
    scores = [_task_text(task, line.by_task.get(task)) for task in tasks]
    return (line.name, *scores, *(_average_text(line, part) for part in parts))


def _task_text(task: str, row: Row | None) -> str:
    texts = [] if row is None else [score_text(row.scores.get(measure.key)) for measure in TASKS[task].columns]
    return " / ".join(texts) if all(texts) else ""


def _average_text(line: Line, tasks: Sequence[str]) -> str:
    """Write an average; where this model lacks some of the tasks, with how many it is over."""
    found = [by_seed for task in tasks if (by_seed := _worth_by_seed(task, line.by_task.get(task)))]
    text = score_text(_average(found))
    return text if len(found) in (0, len(tasks)) else f"{text} (of {len(found)})"


def _worth_by_seed(task: str, row: Row | None) -> dict[int, float]:
    keys = [measure.key for measure in TASKS[task].columns]
    return {
        record.seed: fmean(record.scores[key] for key in keys)
        for record in (row.records if row is not None else ())
        if all(key in record.scores for key in keys)
    }


def _average(tasks: Sequence[dict[int, float]]) -> Statistic | None:
    """Average over tasks seed by seed; where tasks have different seeds there is no spread."""
    if not tasks:
        return None
    if all(by_seed.keys() == tasks[0].keys() for by_seed in tasks):
        return statistic([fmean(by_seed[seed] for by_seed in tasks) for seed in tasks[0]])
    return Statistic(fmean(fmean(by_seed.values()) for by_seed in tasks), None)
