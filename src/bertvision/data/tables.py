"""Tables (.csv, .tsv, .txt, .jsonl, .parquet, rows of the hub) -> lines of cells, each with where it stands.

One cell -> a text, a number, a label or several; what is wrong names the column.

A Parquet file of some hundred bytes can name one long text a million times. So its texts are read as numbers into a
list of different texts, as most files hold them anyway, and are written out only where all of them are not too much.
"""

import csv
import io
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from bertvision.data.example import Column
from bertvision.data.sources import (
    LIMIT,
    BadExampleError,
    HubId,
    is_unicode,
    load_hub_rows,
    most_unpacked,
    parse_hub_id,
    read_bytes,
)
from bertvision.data.text_format import (
    SAY_ENCODING,
    USUAL,
    TextFormat,
    decode_text,
    other_delimiter,
    recognise_delimiter,
)
from bertvision.errors import DataError, MissingExtraError, reason_of
from bertvision.files import exists, parse_json, sha256_of

EXPECTED = "a .csv, .tsv, .txt, .jsonl or .parquet file (.gz too)"
DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": "\t"}
ENDINGS = (*DELIMITERS, ".jsonl", ".ndjson", ".parquet")
MAX_CELL = 2**31 - 1  # a whole book fits; Python's own limit is 131,072 letters
MAX_NAME = 40  # letters of a column's name that errors show
RawLabel = str | float | tuple[str, ...] | None  # names are not numbers yet


class Line(NamedTuple):
    """The cells of one example, by number or by name, or what is wrong with them."""

    where: str
    cells: Sequence[Any] | Mapping[str, Any]
    problem: str = ""


@dataclass(frozen=True)
class TableFile:
    """The lines of one source; names are None where columns have numbers alone."""

    name: str
    lines: Sequence[Line]
    names: tuple[str, ...] | None
    sha256: str | None
    advice: str = ""  # what else could stand between its cells, where it has a single column

    def with_header(self) -> "TableFile":
        """Take the names of the columns from the first line."""
        names = tuple(str(cell).strip() for cell in self.lines[0].cells)
        return replace(self, names=names, lines=self.lines[1:])

    @property
    def header(self) -> str:
        """Return the names of the columns for an error; the first line of a plain text is one long name."""
        return ", ".join(name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}..." for name in self.names or ())

    @property
    def width(self) -> int:
        """Count the cells that a line should have."""
        return len(self.lines[0].cells if self.names is None else self.names)

    def has(self, column: Column) -> bool:
        """Return whether there is such a column."""
        if isinstance(column, int):
            return column < self.width
        return self.names is not None and column in self.names

    def cell(self, line: Line, column: Column) -> Any:  # noqa: ANN401 (the reader of the column checks it)
        """Return one cell of a line; None where JSON lacks it."""
        if isinstance(line.cells, Mapping):
            return line.cells.get(column if isinstance(column, str) else (self.names or ())[column])
        return line.cells[column if isinstance(column, int) else (self.names or ()).index(column)]

    def check(self, line: Line) -> None:
        """Refuse a line that could not be read or has too few or too many cells."""
        if line.problem:
            raise BadExampleError(line.problem)
        if not isinstance(line.cells, Mapping) and len(line.cells) != self.width:
            as_in = "the first line has" if self.names is None else "the header names"
            raise BadExampleError(f"{len(line.cells)} fields, and {as_in} {self.width}; fix the line")


def open_table(
    source: str,
    hub: HubId | None,
    split: str,
    form: TextFormat = USUAL,
    known_headers: Sequence[Collection[str]] = (),
) -> TableFile:
    """Read a file or a data set of the hub; `hub` knows the configuration of its own data set, `split` is a default.

    Columns that one of the `known_headers` names tell what stands between the cells, where `form` does not.
    """
    ending = ending_of(source)
    if ending in ENDINGS or exists(source):
        return _open_file(Path(source), ending, form, known_headers)
    asked = parse_hub_id(source)
    if asked is None:
        raise DataError(f"{source}: no such file; give {EXPECTED}, or owner/name[/config][:split]")
    config = hub.config if hub is not None and asked.dataset == hub.dataset and not asked.config else asked.config
    rows = load_hub_rows(asked.dataset, config, asked.split or split)
    return _named(source, [Line(f"{source}: row {number}", row) for number, row in enumerate(rows, start=1)], None)


def _open_file(path: Path, ending: str, form: TextFormat, known_headers: Sequence[Collection[str]]) -> TableFile:
    if ending not in ENDINGS:
        raise DataError(f"{path}: cannot tell its format from its name; give {EXPECTED}")
    if ending == ".parquet":
        rows = enumerate(read_parquet(path, is_kept=True), start=1)
        return _named(str(path), [Line(f"{path}: row {number}", row) for number, row in rows], sha256_of(path))
    text = decode_text(path, read_bytes(path, EXPECTED), form.encoding)
    if not text.strip():
        raise DataError(f"{path}: the file is empty; give {EXPECTED}")
    if ending not in DELIMITERS:
        return _named(str(path), list(_json_lines(path, text)), sha256_of(path))
    delimiter = form.delimiter or recognise_delimiter(text, DELIMITERS[ending], known_headers)
    is_quoted = form.quoted if form.quoted is not None else ending == ".csv" or delimiter != "\t"
    advice = other_delimiter(text, delimiter)
    lines = _quoted_lines(path, text, delimiter, advice) if is_quoted else _plain_lines(path, text, delimiter)
    return TableFile(str(path), list(lines), None, sha256_of(path), advice)


def _named(name: str, lines: list[Line], sha256: str | None) -> TableFile:
    first = next((line.cells for line in lines if isinstance(line.cells, Mapping)), {})
    if not first:
        why = f"; {lines[0].where}: {lines[0].problem}" if lines and lines[0].problem else "; is it the right file?"
        raise DataError(f"{name}: no row in it{why}")
    return TableFile(name, lines, tuple(first), sha256)


def _plain_lines(path: Path, text: str, delimiter: str) -> Iterator[Line]:
    # GLUE's files have quotes that are never closed, and line separators of Unicode inside their sentences.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield Line(f"{path}: line {number}", line.removesuffix("\r").split(delimiter))


def _quoted_lines(path: Path, text: str, delimiter: str, advice: str) -> Iterator[Line]:
    csv.field_size_limit(MAX_CELL)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    first = 1  # a cell may hold several lines
    try:
        for cells in reader:
            if cells:
                yield Line(f"{path}: line {first}", cells)
            first = reader.line_num + 1
    except csv.Error as error:
        advice = advice or "; fix it, or say `data.quoted=false`"
        raise DataError(f"{path}: line {first}: not quoted as CSV is ({error}){advice}") from None


def _json_lines(path: Path, text: str) -> Iterator[Line]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _json_line(f"{path}: line {number}", line)


def _json_line(where: str, line: str) -> Line:
    try:
        content = parse_json(line)
    except ValueError as error:
        return Line(where, (), f"not JSON ({error}); give an object on a line of its own")
    if not isinstance(content, dict):
        return Line(where, (), f"expected an object with columns as keys, got {type(content).__name__}")
    return Line(where, content)


def ending_of(source: str) -> str:
    """Return how a file's name ends, packed or not."""
    path = Path(source)
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def place_of(column: Column) -> str:
    """Write a column as errors name it."""
    return f"column `{column}`" if isinstance(column, str) else f"column {column}"


def plain_text(value: Any, column: Column) -> str:  # noqa: ANN401 (checked here)
    """Take a cell for a text."""
    if is_blank(value):
        raise BadExampleError(f"{place_of(column)} is empty; give a text")
    if not isinstance(value, str):
        raise BadExampleError(f"{place_of(column)} has type {type(value).__name__}; give it as text")
    return _checked(value, column)


NO_NAME = ("nan", "NaN")  # of a class


def class_name(value: Any, column: Column) -> str:  # noqa: ANN401 (checked here)
    """Take a cell for the name of a class; 1, 1.0 and "1" are the same one."""
    if is_blank(value):
        raise BadExampleError(f"{place_of(column)} is empty; give a label")
    if isinstance(value, str) and value.strip() in NO_NAME:
        raise BadExampleError(
            f"{place_of(column)} is {value.strip()!r}, as programs write what is missing; give a label"
        )
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(int(value) if isinstance(value, float) and value.is_integer() else value)
    if not isinstance(value, str):
        raise BadExampleError(f"{place_of(column)} has type {type(value).__name__}; give a text or a number")
    return _checked(value.strip(), column)


def label_names(value: Any, column: Column, separator: str) -> tuple[str, ...]:  # noqa: ANN401 (checked here)
    """Take a cell for any number of labels: a list, a JSON list, or names with a separator between them."""
    if _is_missing(value):
        raise BadExampleError(f"{place_of(column)} is missing; give labels, or an empty list")
    listed = value
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            listed = parse_json(value)
        except ValueError:
            raise BadExampleError(f"{place_of(column)} is no JSON list: {value[:80]!r}; fix it") from None
    elif isinstance(value, str):
        listed = [name for name in value.split(separator) if name.strip()]
    if not isinstance(listed, (list, tuple)):
        listed = [listed]
    return tuple(class_name(name, column) for name in listed)


def number(value: Any, column: Column) -> float:  # noqa: ANN401 (checked here)
    """Take a cell for a finite number."""
    if is_blank(value):
        raise BadExampleError(f"{place_of(column)} is empty; give a number")
    if (found := finite_number(value)) is None:
        raise BadExampleError(f"{place_of(column)} is {value!r:.80}; give a number")
    return found


def finite_number(value: Any) -> float | None:  # noqa: ANN401 (checked here)
    """Return a value as a finite number; None where it is none."""
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def switched(value: Any, column: Column) -> bool:  # noqa: ANN401 (checked here)
    """Take a cell for 0 or 1."""
    name = class_name(value, column)
    if name not in ("0", "1", "true", "false"):
        raise BadExampleError(f"{place_of(column)} is {value!r:.80}; give 0 or 1")
    return name in ("1", "true")


def _checked(text: str, column: Column) -> str:
    if not is_unicode(text):
        raise BadExampleError(f"{place_of(column)} is not UTF-8 text; {SAY_ENCODING}")
    return text


def is_blank(value: Any) -> bool:  # noqa: ANN401 (anything)
    """Return whether a cell holds nothing."""
    return _is_missing(value) or (isinstance(value, str) and not value.strip())


def _is_missing(value: Any) -> bool:  # noqa: ANN401 (anything)
    return value is None or (isinstance(value, float) and math.isnan(value))


ROWS_AT_ONCE = 1024
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
# Of texts that can be read as numbers. Others (of deltas) are read a few rows at a time.
COUNTABLE = {"PLAIN", "PLAIN_DICTIONARY", "RLE", "RLE_DICTIONARY", "BIT_PACKED"}
Row = dict[Any, Any]


def read_parquet(path: Path, *, is_kept: bool) -> Iterator[Row]:
    """Read a file row by row; `is_kept` counts all rows together, else those that are in memory at once."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    packed = path.stat().st_size if path.exists() else 0
    most, unpacked = most_unpacked(packed), 0
    too_much = DataError(
        f"{path}: its {packed:,} bytes become more than {most:,} when unpacked; if it is no bomb, set {LIMIT} to more "
        "bytes"
    )
    try:
        chunks = _column_chunks(pyarrow.parquet.read_metadata(path))
        sizes = [max(each.total_uncompressed_size, each.num_values * _width(each)) for each in chunks]
        if (sum(sizes) if is_kept else max(sizes, default=0)) > most:
            raise too_much
        texts = [each for each in chunks if each.physical_type == "BYTE_ARRAY"]
        others = [each for each in texts if not COUNTABLE.issuperset(each.encodings)]
        # A text is no longer than its column, so that many rows are not too much; how many a list holds is not known.
        longest = max((each.total_uncompressed_size for each in others), default=1)
        if any("." in each.path_in_schema and each.num_values * longest > most for each in others):
            raise too_much
        names = {each.path_in_schema for each in texts} - {each.path_in_schema for each in others}
        file = pyarrow.parquet.ParquetFile(path, read_dictionary=sorted(names))
        for batch in file.iter_batches(max(1, min(ROWS_AT_ONCE, most // max(1, longest)))):
            size = sum(map(_written_out, batch.columns))
            unpacked = unpacked + size if is_kept else size
            if unpacked > most:
                raise too_much
            yield from batch.to_pylist()
    except (
        OSError,
        ValueError,
        OverflowError,
        KeyError,
        pyarrow.ArrowException,
    ) as error:  # also text that is no UTF-8
        raise DataError(f"{path}: cannot be read as Parquet ({reason_of(error)}); get it again") from None


def _column_chunks(about: Any) -> list[Any]:  # noqa: ANN401 (pyarrow's FileMetaData)
    groups = [about.row_group(place) for place in range(about.num_row_groups)]
    return [group.column(place) for group in groups for place in range(group.num_columns)]


def _width(chunk: Any) -> int:  # noqa: ANN401 (pyarrow's ColumnChunkMetaData)
    """Return how many bytes a value has at least; one of a fixed length has no more than its column."""
    return WIDTHS.get(chunk.physical_type) or max(1, int(chunk.total_uncompressed_size))


def _written_out(values: Any) -> int:  # noqa: ANN401 (pyarrow's Array)
    """Count the bytes of an array whose texts are written out as often as they are named."""
    import pyarrow
    import pyarrow.compute

    if isinstance(values, pyarrow.ExtensionArray):
        values = values.storage
    kind = values.type
    if pyarrow.types.is_dictionary(kind):
        lengths = pyarrow.compute.binary_length(values.dictionary)
        total = pyarrow.compute.sum(pyarrow.compute.take(lengths, values.indices)).as_py() or 0
        return int(total) + 4 * len(values)
    if pyarrow.types.is_nested(kind):
        inside = values.flatten()
        parts = inside if isinstance(inside, list) else [inside]
        return 4 * len(values) + sum(map(_written_out, parts))
    return int(values.nbytes)
