"""Records of one experiment -> its tables: all rows, the fractions side by side, and what probabilities are worth."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from bertvision.records import RunRecord, fraction_name
from bertvision.report.measures import Measure, measures_of
from bertvision.report.renderers import Alignment, Table, score_text, share_text
from bertvision.report.results import Row, full_rows, table_rows, trained

NUMBER: Alignment = "right"
CALIBRATION = (
    Measure("temperature", "temperature", "what logits are divided by, fitted on the held-out part", digits=2),
    Measure(
        "ece",
        "ECE before",
        "expected calibration error, from 0 to 1: how far probabilities lie from the shares that are right",
        digits=3,
    ),
    Measure("ece_calibrated", "ECE after", "the same with that temperature, at the tuned threshold", digits=3),
    Measure(
        "risk_coverage_area",
        "AURC",
        "area under the risk-coverage curve, from 0 to 1: the mean share of wrong answers; less is better",
        digits=3,
    ),
    Measure("tuned_threshold", "threshold tuned", "for “no answer”, on the held-out part", digits=2),
    Measure("best_f1_thresh", "threshold best", "for these very questions", digits=2),
    Measure("tuned_below_best_f1", "F1 below best", "how far the tuned threshold's F1 lies below the best one's"),
)


class Column(NamedTuple):
    """A column's head, its cells, which tables have it, and its head on a terminal (None: not shown there)."""

    head: str
    alignment: Alignment
    cell: Callable[[Row], str]
    is_shown: Callable[[Sequence[Row]], bool] = lambda rows: True
    short: str | None = None


def results_table(records: Iterable[RunRecord]) -> Table:
    """Lay out records of one task as a table with a row per model and fraction; one experiment at a time reads best."""
    rows = table_rows(records)
    return _table(_columns(rows), rows)


def terminal_table(records: Iterable[RunRecord]) -> Table:
    """Lay out the same rows for a terminal: fewer and shorter columns, the fraction first."""
    rows = table_rows(records)
    columns = [column._replace(head=column.short) for column in _columns(rows) if column.short is not None]
    return _table(columns, rows)


def terminal_note(records: Sequence[RunRecord]) -> str:
    """Name the thresholds of a terminal's columns; nothing where a task has none."""
    named = [measure for measure in measures_of(records).columns if measure.at and measure.short]
    texts = [f"{each.short} {each.at}" if each.short == each.title else f"{each.short}: {each.head}" for each in named]
    return f"By the threshold for “no answer”: {', '.join(texts)}." if texts else ""


def models_table(records: Iterable[RunRecord]) -> Table | None:
    """Lay out one row per model and the fractions side by side, as the papers do; None where there is one fraction."""
    rows = full_rows(records)
    fractions = list(dict.fromkeys(row.fraction for row in trained(rows)))
    if len(fractions) < 2:
        return None
    pairs = _pairs(rows)
    models: dict[str, dict[float | None, Row]] = {}
    for row in rows:
        models.setdefault(row.name, {})[row.fraction] = row
    heads = [f"{fraction_name(fraction)}: {head}" for fraction in fractions for head in pairs]
    return Table(
        header=("model", "parameters", "% of encoder", *heads),
        alignments=("left", *[NUMBER] * (2 + len(heads))),
        rows=tuple(_model_cells(found, fractions, pairs) for found in models.values()),
    )


def calibration_table(records: Iterable[RunRecord]) -> Table | None:
    """Lay out temperature, calibration errors, area and thresholds; None where no row has probabilities."""
    rows = [row for row in table_rows(records) if "ece" in row.scores or "tuned_threshold" in row.scores]
    if not rows:
        return None
    return _table([*LEADING, *(_score_column(measure) for measure in CALIBRATION)], rows)


def _table(columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    shown = [column for column in columns if column.is_shown(rows)]
    return Table(
        header=tuple(column.head for column in shown),
        alignments=tuple(column.alignment for column in shown),
        rows=tuple(tuple(column.cell(row) for column in shown) for row in rows),
    )


def _columns(rows: Sequence[Row]) -> list[Column]:
    measures = measures_of([record for row in rows for record in row.records]).columns
    return [*LEADING, *COST, *map(_score_column, measures), SECONDS]


def _score_column(measure: Measure) -> Column:
    short = measure.title if measure.short is None else measure.short or None
    return Column(
        measure.head, NUMBER, lambda row: score_text(row.scores.get(measure.key), measure.digits), short=short
    )


def _pairs(rows: Sequence[Row]) -> dict[str, list[Measure]]:
    """Gather the measures that share a cell, such as EM and F1 at one threshold, by the head of their column."""
    measures = [each for each in measures_of([row.records[0] for row in rows]).columns if each.is_paired]
    groups = [(at, list(group)) for at, group in groupby(measures, key=lambda measure: measure.at)]
    return {f"{' / '.join(measure.title for measure in group)} {at}".rstrip(): group for at, group in groups}


def _model_cells(
    by_fraction: Mapping[float | None, Row], fractions: Sequence[float | None], pairs: Mapping[str, Sequence[Measure]]
) -> tuple[str, ...]:
    first = next(iter(by_fraction.values()))
    cells = [first.name, _parameters_text(first), _share_text(first)]
    for fraction in fractions:
        row = first if first.kind == "baseline" else by_fraction.get(fraction)
        cells += [_pair_text(row, measures) for measures in pairs.values()]
    return tuple(cells)


def _pair_text(row: Row | None, measures: Sequence[Measure]) -> str:
    texts = [] if row is None else [score_text(row.scores.get(each.key), each.digits) for each in measures]
    return " / ".join(texts) if all(texts) else ""


def _parameters_text(row: Row) -> str:
    return "" if row.kind == "baseline" else f"{row.parameters:,}"


def _share_text(row: Row) -> str:
    return "" if row.share is None else share_text(row.share)


def _seconds_text(row: Row) -> str:
    if row.kind == "baseline":
        return ""
    return f"{row.seconds:,.0f}" if row.seconds >= 10 else f"{row.seconds:.1f}"


LEADING = (
    Column("experiment", "left", lambda row: row.experiment, lambda rows: len({row.experiment for row in rows}) > 1),
    Column("fraction", "left", lambda row: row.fraction_text, short="fraction"),
    Column("model", "left", lambda row: row.name, short="model"),
    Column("kind", "left", lambda row: row.kind),
    Column(
        "data", NUMBER, lambda row: f"{100 * row.data:g}%", lambda rows: len({row.data for row in rows}) > 1, "data"
    ),
    Column(
        "seeds", NUMBER, lambda row: str(row.seeds), lambda rows: len({row.seeds for row in trained(rows)}) > 1, "seeds"
    ),
)
COST = (
    Column("parameters", NUMBER, _parameters_text, short="parameters"),
    Column("% of encoder", NUMBER, _share_text),
)
SECONDS = Column("seconds", NUMBER, _seconds_text, short="secs")
