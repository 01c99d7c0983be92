"""SWAG's tables and HellaSwag's lines -> beginnings with their possible continuations."""

from collections.abc import Iterator, Mapping
from typing import Any

from bertvision.data.example import ChoiceRow, Column, OnBad, Split
from bertvision.data.sources import CAN_DROP, BadExampleError, Found, HubId, collect, parse_source, take_part
from bertvision.data.tables import Line, TableFile, class_name, open_table, plain_text
from bertvision.data.text_format import USUAL, TextFormat
from bertvision.errors import DataError

LAYOUTS = "SWAG's columns (sent1, sent2, ending0, ending1, ..., label) or HellaSwag's (ctx, endings, label)"
HEADERS = (("ctx", "endings"), ("ending0", "sent1"), ("ending0", "startphrase"))


def read_choices(
    source: str,
    *,
    hub: HubId | None = None,
    on_bad: OnBad = "fail",
    hub_split: str = "train",
    needs_labels: bool = True,
    advice: str = CAN_DROP,
    form: TextFormat = USUAL,
) -> Split[ChoiceRow]:
    """Read rows of several choice; without `needs_labels`, a row without one has None."""
    table = open_table(parse_source(source).whole, hub, hub_split, form, HEADERS)
    table = table.with_header() if table.names is None else table
    if not any(all(map(table.has, header)) for header in HEADERS):
        raise DataError(f"{table.name}: it has the columns {table.header}{table.advice or f'; give {LAYOUTS}'}")
    return take_part(collect(_find_rows(table, needs_labels), table.name, on_bad, table.sha256, advice=advice), source)


def choice_of(identity: str, cells: Mapping[Column, Any]) -> ChoiceRow:
    """Return what a single row holds, its label not looked at."""
    texts = {name: value for name, value in cells.items() if isinstance(name, str) and name != "label"}
    table = TableFile("", (), tuple(texts), None)
    if not any(all(map(table.has, header)) for header in HEADERS):
        raise BadExampleError(f"give {LAYOUTS}")
    return _row(table, Line("", texts), identity, needs_labels=False)


def _find_rows(table: TableFile, needs_labels: bool) -> Iterator[Found[ChoiceRow]]:
    expected: int | None = None  # endings, as many as the first good row has
    for place, line in enumerate(table.lines):
        try:
            table.check(line)
            row = _row(table, line, str(place), needs_labels)
            if expected is not None and len(row.endings) != expected:
                raise BadExampleError(f"{len(row.endings)} endings, and the rows before have {expected}; give as many")
            expected = len(row.endings)
            yield Found(line.where, row)
        except BadExampleError as problem:
            yield Found(line.where, None, str(problem))


def _row(table: TableFile, line: Line, identity: str, needs_labels: bool) -> ChoiceRow:
    if table.has("ctx"):
        context, endings = plain_text(table.cell(line, "ctx"), "ctx"), _list_of(table.cell(line, "endings"))
    else:
        context, endings = _swag(table, line)
    if len(endings) < 2:
        raise BadExampleError(f"{len(endings)} ending; give at least two to choose from")
    return ChoiceRow(identity, context, endings, _right(table, line, len(endings), needs_labels))


def _list_of(value: Any) -> tuple[str, ...]:  # noqa: ANN401 (checked here)
    if not isinstance(value, list):
        raise BadExampleError(f"column `endings` has type {type(value).__name__}; give a list of texts")
    return tuple(plain_text(ending, "endings") for ending in value)


def _swag(table: TableFile, line: Line) -> tuple[str, tuple[str, ...]]:
    """Return the first sentence, and the endings with the beginning that the second sentence has for all of them."""
    columns = [f"ending{number}" for number in range(10) if table.has(f"ending{number}")]
    endings = tuple(plain_text(table.cell(line, column), column) for column in columns)
    if not table.has("sent1"):
        return plain_text(table.cell(line, "startphrase"), "startphrase"), endings
    begun = table.cell(line, "sent2") if table.has("sent2") else ""
    if isinstance(begun, str) and begun.strip():
        begun = plain_text(begun, "sent2")
        endings = tuple(f"{begun} {ending}" for ending in endings)
    return plain_text(table.cell(line, "sent1"), "sent1"), endings


def _right(table: TableFile, line: Line, endings: int, needs_labels: bool) -> int | None:
    label = table.cell(line, "label") if table.has("label") else None
    if label in (None, "", -1) and not needs_labels:  # HellaSwag's test rows have "", the hub's -1
        return None
    name = class_name(label, "label")
    if not name.isdecimal() or int(name) >= endings:
        raise BadExampleError(f"column `label` is {name!r}; give the right ending's number, 0 to {endings - 1}")
    return int(name)
