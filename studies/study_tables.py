"""A `StudyRecord` -> tables: what was published, what came out, the verdicts."""

from collections.abc import Sequence

from bertvision.records import fraction_name
from bertvision.tables import Cell, Cells, Column, Number, Table, without_empty_columns
from studies.records import JudgedClaim, JudgedResult, SeedMean, StudyRecord
from studies.study import RULE, Study


def study_tables(record: StudyRecord) -> list[Table]:
    """Lay out a study's results and claims."""
    scores = list(dict.fromkeys(score for each in record.results for score in each.ours))
    first = next((score for score in scores if any(score in each.published for each in record.results)), None)
    columns: list[Column | str] = ["model", Column("fraction", "left"), *(f"published {score}" for score in scores)]
    columns += [*scores, "published gain", "gain", "difference", "over control"]
    columns += [Column("verdict", "left"), Column("known to be wrong", "left")]
    rows = tuple(_result_cells(each, scores) for each in record.results)
    about = f"Published: {record.metric} Gains are by {first}." if first else record.metric
    note = f"{about} {RULE} Margin: {record.margin:g}."
    return [without_empty_columns(Table(record.title, tuple(columns), rows, note)), claims_table(record.claims)]


def _result_cells(each: JudgedResult, scores: Sequence[str]) -> Cells:
    return (
        each.row,
        fraction_name(each.fraction),
        *(_number(each.published.get(score)) for score in scores),
        *(interval_text(each.ours.get(score)) for score in scores),
        _number(each.published_gain, "+.1f"),
        interval_text(each.gain, "+"),
        _difference(each),
        interval_text(each.over_control, "+"),
        each.verdict or "",
        each.note,
    )


def published_table(study: Study) -> Table:
    """Lay out what a paper has published."""
    scores = list(dict.fromkeys(score for each in study.published for score in each.scores))
    rows = tuple(
        (each.row, str(each.fraction), *(_number(each.scores.get(score)) for score in scores), each.note)
        for each in study.published
    )
    names: list[Column | str] = ["model", Column("fraction", "left"), *scores, Column("known to be wrong", "left")]
    return without_empty_columns(Table("", tuple(names), rows))


def short_table(record: StudyRecord) -> Table:
    """Lay out a study's results for a terminal, by the score that they are judged by."""
    rows = []
    for each in record.results:
        score = next((score for score in each.ours if score in each.published), next(iter(each.ours)))
        ours = Number(each.ours[score].mean)
        published, gain = _number(each.published.get(score)), interval_text(each.gain, "+")
        rows.append((each.row, fraction_name(each.fraction), published, ours, gain, each.verdict or ""))
    heads = (Column("fraction", "left"), "published", "ours", "gain (95%)", Column("verdict", "left"))
    return Table(record.title, ("model", *heads), tuple(rows), record.metric)


def claims_table(claims: Sequence[JudgedClaim]) -> Table:
    """Lay out claims with their verdicts."""
    heads = (Column("claim", "left"), Column("where", "left"), "published", "ours", Column("verdict", "left"))
    rows = tuple(
        (
            each.text,
            each.where,
            _number(each.published, "+.1f"),
            interval_text(each.ours, "+"),
            each.verdict or "untested",
        )
        for each in claims
    )
    return Table("Claims", heads, rows)


def interval_text(found: SeedMean | None, sign: str = "") -> str:
    """Write a mean with its interval."""
    if found is None:
        return ""
    mean = f"{found.mean:{sign}.1f}"
    return mean if found.low is None else f"{mean} ({found.low:{sign}.1f} to {found.high:{sign}.1f})"


def _number(value: float | None, form: str = ".1f") -> Cell:
    return "" if value is None else Number(value, form)


def _difference(each: JudgedResult) -> Cell:
    """Return how far our gain lies from the published one; of what others are compared with, how far its value does."""
    if each.gain is not None and each.published_gain is not None:
        return Number(each.gain.mean - each.published_gain, "+.1f")
    score = next((score for score in each.ours if score in each.published), None)
    if each.gain is not None or score is None:
        return ""
    return Number(each.ours[score].mean - each.published[score], "+.1f")
