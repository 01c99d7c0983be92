"""Tables -> texts, pairs of texts, or beginnings with their possible continuations, with their labels."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from bertvision.data.example import ChoiceRow, Column, ColumnsConfig, OnBad, Split, TextRow
from bertvision.data.sources import (
    CAN_DROP,
    BadExampleError,
    Found,
    HubId,
    collect,
    is_unicode,
    parse_source,
    take_part,
)
from bertvision.data.tables import (
    Line,
    RawLabel,
    TableFile,
    class_name,
    is_blank,
    label_names,
    number,
    open_table,
    place_of,
    plain_text,
    switched,
)
from bertvision.data.text_format import SAY_ENCODING, USUAL, TextFormat
from bertvision.errors import DataError

# Where labels are optional; to leave such rows out would mostly leave out all of them.
GO_UNSCORED = (
    "; correct it, name the labels as the table does (data.labels), or leave the cells empty to go without scores"
)
LabelColumn = Literal["class", "labels", "number"]  # what a table says of a row
SAY_ID = "; correct data.columns.id, or number the rows with data.columns.id=null"


class RowLayout(NamedTuple):
    """How a task's tables are written."""

    holds: LabelColumn
    layouts: tuple[ColumnsConfig, ...]  # the first whose texts are there is taken
    labels: tuple[str, ...] = ()  # empty: those that the table has
    is_published: bool = False  # labels may be written as their numbers, -1 means unknown, and an id may be absent
    header: bool | None = None
    form: TextFormat = USUAL
    separator: str = ","
    hub: HubId | None = None


class LabelledRows(NamedTuple):
    """A split and the names of its labels."""

    split: Split[TextRow]
    labels: tuple[str, ...]


class _Raw(NamedTuple):
    where: str
    id: str
    texts: tuple[str, ...]
    label: RawLabel


def read_rows(
    source: str,
    layout: RowLayout,
    *,
    on_bad: OnBad = "fail",
    hub_split: str = "train",
    needs_labels: bool = True,
    advice: str = CAN_DROP,
) -> LabelledRows:
    """Read the rows of a table; without `needs_labels`, a table may lack its columns of labels and of ids."""
    whole = parse_source(source).whole
    headers = [] if layout.header is False else [each.text_names for each in layout.layouts]
    table, columns = _fit(open_table(whole, layout.hub, hub_split, layout.form, headers), layout)
    labelled = needs_labels or all(table.has(column) for column in _listed(columns.label))
    _check_columns(table, columns, labelled, needs_id=needs_labels and not layout.is_published)
    raws = list(_raw_rows(table, columns, layout, labelled, needs_labels))
    labels = layout.labels or _names(raws, columns, layout)
    found = (_numbered(raw, labels, columns, layout, needs_labels) if isinstance(raw, _Raw) else raw for raw in raws)
    split = collect(found, table.name, on_bad, table.sha256, advice=advice)
    if not layout.labels and layout.holds == "class":
        _refuse_header(raws, table, layout)
    return LabelledRows(take_part(split, source), labels)


def _fit(table: TableFile, layout: RowLayout) -> tuple[TableFile, ColumnsConfig]:
    """Find which layout the table has, and take its header off."""
    last = layout.layouts[-1]
    if table.names is not None or layout.header is False:
        return table, _fitting(table, layout.layouts) or last
    named = table.with_header()
    # A header is there where it names the texts, or where the user says so.
    by_name = [each for each in layout.layouts if layout.header or isinstance(_listed(each.text)[0], str)]
    if columns := _fitting(named, by_name):
        return named, columns
    return (named if last in by_name else table), last


def _fitting(table: TableFile, layouts: Sequence[ColumnsConfig]) -> ColumnsConfig | None:
    """Choose among the layouts whose texts are there the one that has most of its other columns."""
    fitting = [each for each in layouts if all(table.has(column) for column in _listed(each.text))]
    return max(fitting, key=lambda each: _count_others(table, each), default=None)


def _count_others(table: TableFile, columns: ColumnsConfig) -> int:
    others = [*_listed(columns.label), *([] if columns.id is None else [columns.id])]
    return sum(table.has(column) for column in others)


def _check_columns(table: TableFile, columns: ColumnsConfig, labelled: bool, needs_id: bool) -> None:
    wanted = [*_listed(columns.text), *(_listed(columns.label) if labelled else ())]
    if columns.id is not None and (needs_id or table.has(columns.id)):
        wanted.append(columns.id)
    for column in wanted:
        if not table.has(column):
            key = "label" if column in _listed(columns.label) else "text"
            advice = SAY_ID if column == columns.id else f"; say with data.columns.{key}=NAME which one holds it"
            raise DataError(f"{table.name}: no {place_of(column)} in it; {_columns_there(table, advice)}")
        if table.names is not None and isinstance(column, str) and table.names.count(column) > 1:
            raise DataError(f"{table.name}: two columns are called {column!r}; rename one, or give its number")


def _columns_there(table: TableFile, advice: str) -> str:
    """Return which columns there are, and what could be set to find others."""
    if table.names is not None and not all(map(is_unicode, table.names)):
        return f"its header is not UTF-8 text; {SAY_ENCODING}"
    there = f"{table.width} columns" if table.names is None else f"the columns {table.header}"
    return f"it has {there}{table.advice or advice}"


def _raw_rows(
    table: TableFile, columns: ColumnsConfig, layout: RowLayout, labelled: bool, needs_labels: bool
) -> Iterator[_Raw | Found[TextRow]]:
    has_id = columns.id is not None and table.has(columns.id)
    for place, line in enumerate(table.lines):
        try:
            table.check(line)
            texts = tuple(plain_text(table.cell(line, column), column) for column in _listed(columns.text))
            is_known = labelled and (needs_labels or not _is_left_out(table, line, columns))
            label = _label(table, line, columns, layout) if is_known else None
            if label is None and needs_labels:
                raise BadExampleError(f"{place_of(_listed(columns.label)[0])} has no label; give one")
            name = class_name(table.cell(line, columns.id), columns.id) if has_id and columns.id is not None else None
            yield _Raw(line.where, str(place) if name is None else name, texts, label)
        except BadExampleError as problem:
            yield Found(line.where, None, str(problem))


def _is_left_out(table: TableFile, line: Line, columns: ColumnsConfig) -> bool:
    """Return whether the label is still to be filled in, as in a file that is to be predicted."""
    return all(is_blank(table.cell(line, column)) for column in _listed(columns.label))


def _label(table: TableFile, line: Line, columns: ColumnsConfig, layout: RowLayout) -> RawLabel:
    column = columns.label
    if isinstance(column, tuple):
        names = layout.labels or tuple(map(str, column))
        given = zip(names, column, strict=True)
        return tuple(name for name, each in given if switched(table.cell(line, each), each))
    value: Any = table.cell(line, column)
    if layout.holds == "labels":
        return label_names(value, column, layout.separator)
    if layout.holds == "number":
        # The hub's test rows of STS-B have -1 for a score.
        return None if layout.is_published and value in (-1, None) else number(value, column)
    name = class_name(value, column)
    return None if layout.is_published and name == "-1" else name


def _names(raws: Sequence[_Raw | Found[TextRow]], columns: ColumnsConfig, layout: RowLayout) -> tuple[str, ...]:
    """Return the labels that occur, sorted: as numbers where all are numbers, so that 10 comes after 9."""
    if layout.holds == "number":
        return ()
    if isinstance(columns.label, tuple):
        return tuple(map(str, columns.label))
    given = (raw.label for raw in raws if isinstance(raw, _Raw))
    names = {name for label in given for name in (label if isinstance(label, tuple) else (label,))} - {None}
    texts = sorted(str(name) for name in names)
    return tuple(sorted(texts, key=float) if all(map(_is_number, texts)) else texts)


def _numbered(
    raw: _Raw, labels: tuple[str, ...], columns: ColumnsConfig, layout: RowLayout, needs_labels: bool
) -> Found[TextRow]:
    try:
        label = _as_number(raw.label, labels, layout)
    except KeyError as unknown:
        shown = ", ".join(map(repr, labels[:8])) + (", ..." if len(labels) > 8 else "")
        problem = f"{place_of(_listed(columns.label)[0])}: {unknown.args[0]!r} is no label; expected {shown}"
        if not needs_labels and not layout.is_published:
            return Found(raw.where, None, problem, GO_UNSCORED)
        advice = "" if layout.is_published else " (all that train has, unless data.labels names more)"
        if layout.holds == "class" and not layout.is_published and all(map(_is_number, (unknown.args[0], *labels))):
            advice += "; for numbers as such say task: regression"
        return Found(raw.where, None, f"{problem}{advice}")
    return Found(raw.where, TextRow(raw.id, raw.texts, label))


def _as_number(label: RawLabel, labels: tuple[str, ...], layout: RowLayout) -> int | float | tuple[int, ...] | None:
    if label is None or isinstance(label, float):
        return label
    if isinstance(label, tuple):
        if unknown := [name for name in label if name not in labels]:
            raise KeyError(unknown[0])
        return tuple(int(name in label) for name in labels)
    if label in labels:
        return labels.index(label)
    if layout.is_published and label.isdecimal() and int(label) < len(labels):
        return int(label)
    raise KeyError(label)


def _refuse_header(raws: Sequence[_Raw | Found[TextRow]], table: TableFile, layout: RowLayout) -> None:
    """Refuse what is most likely a header, which would silently be a class of its own."""
    counts = Counter(raw.label for raw in raws if isinstance(raw, _Raw) and isinstance(raw.label, str))
    first = raws[0]
    if table.names is None and layout.header is None and isinstance(first, _Raw) and counts[str(first.label)] == 1:
        raise DataError(
            f"{first.where}: no other line has its label {first.label!r}; is it a header? Say data.header=true or "
            "=false"
        )


def _listed(columns: Column | tuple[Column, ...]) -> tuple[Column, ...]:
    return columns if isinstance(columns, tuple) else (columns,)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


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
