"""A shard of any size -> its rows, one after the other: no more than one of its lines is in memory."""

import csv
import gzip
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import IO, Any

from bertvision.data.example import Column
from bertvision.data.tables import DELIMITERS, ENDINGS, EXPECTED, MAX_CELL, ending_of, read_parquet
from bertvision.data.text_format import BYTE_ORDER_MARKS, SAY_ENCODING, TextFormat, recognise_delimiter
from bertvision.errors import DataError, reason_of
from bertvision.files import parse_json

LONGEST = 2**26  # letters of a line: a longer one is no row, and has to stay out of memory
Lines = Iterator[tuple[int, str | None]]  # with their numbers, from 1 on; None: longer than LONGEST


@dataclass(frozen=True, slots=True)
class ShardRow:
    """One row of a shard, or what is wrong with it."""

    line: int  # on which it begins, counted from 1; of a Parquet file its row
    cells: Mapping[Column, Any]  # by name; by number where the table has no header
    problem: str = ""
    raw: str = ""  # the line itself, where it is no row


@dataclass(frozen=True, slots=True)
class ShardFormat:
    """How the shards of one job are written."""

    form: TextFormat
    has_header: bool = True  # of tables: whether the first line names the columns
    known_header: Collection[str] = ()  # by which the delimiter is recognised


def read_shard(path: Path, how: ShardFormat, seen: Callable[[int], None]) -> Iterator[ShardRow]:
    """Read a shard row by row; `seen` is told how many more of the file's bytes have been read."""
    ending, size = ending_of(str(path)), path.stat().st_size
    if ending not in ENDINGS:
        raise DataError(f"{path}: cannot tell its format from its name; give {EXPECTED}")
    if ending == ".parquet":
        rows = enumerate(read_parquet(path, is_kept=False), start=1)
        yield from (ShardRow(number, cells) for number, cells in rows)
        seen(size)
        return
    before = 0
    with _reading(path) as file, _as_text(file, how.form.encoding, path.suffix == ".gz") as text:
        lines = _lines(text)
        for row in _table_rows(lines, DELIMITERS[ending], how) if ending in DELIMITERS else _json_rows(lines):
            yield row
            at = min(file.tell(), size)
            seen(at - before)
            before = at
    seen(size - before)


@contextmanager
def _reading(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, and say in one line what is wrong with it."""
    try:
        with path.open("rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise DataError(f"{path}: the gzip file is damaged or cut off; get it again") from None
    except UnicodeError as error:
        raise DataError(f"{path}: cannot be decoded ({reason_of(error)}); {SAY_ENCODING}") from None
    except csv.Error as error:
        raise DataError(f"{path}: not quoted as CSV is ({error}); fix it, or say `data.quoted=false`") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); give {EXPECTED}") from None


def _as_text(file: IO[bytes], encoding: str | None, is_packed: bool) -> TextIOWrapper:
    """Return a file's text, unpacked: as its byte order mark says, else in the encoding that is named, else UTF-8."""
    if file.read(2) == b"\x1f\x8b" or is_packed:
        file.seek(0)
        file = gzip.GzipFile(fileobj=file)  # type: ignore[assignment]
    else:
        file.seek(0)
    beginning: bytes = file.peek(4)[:4]  # type: ignore[attr-defined]
    named = next((name for mark, name in BYTE_ORDER_MARKS.items() if beginning.startswith(mark)), encoding) or "utf-8"
    if named == "utf-8":  # bytes that are none stay recognisable, so that their row can be set aside
        return TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="\n")
    return TextIOWrapper(file, named, newline="\n")


def _lines(text: TextIOWrapper) -> Lines:
    number = 0
    while line := text.readline(LONGEST):
        number += 1
        is_whole = len(line) < LONGEST or line.endswith("\n")
        yield number, line if is_whole else None
        while not is_whole:
            rest = text.readline(LONGEST)
            is_whole = len(rest) < LONGEST or rest.endswith("\n")


def _json_rows(lines: Lines) -> Iterator[ShardRow]:
    for number, line in lines:
        if line is None:
            yield ShardRow(number, {}, f"the line is longer than {LONGEST:,} letters; cut it")
        elif line.strip():
            yield _json_row(number, line.rstrip("\r\n"))


def _json_row(number: int, line: str) -> ShardRow:
    try:
        content = parse_json(line)
    except ValueError as error:
        return ShardRow(number, {}, f"not JSON ({error}); give an object on a line of its own", line)
    if not isinstance(content, dict):
        kind = type(content).__name__
        return ShardRow(number, {}, f"expected an object with columns as keys, got {kind}", line)
    return ShardRow(number, content)


def _table_rows(lines: Lines, usual: str, how: ShardFormat) -> Iterator[ShardRow]:
    texts = (_of_table(number, line) for number, line in lines)
    first = next((text for text in texts if text.strip()), "")
    delimiter = how.form.delimiter or recognise_delimiter(first, usual, [how.known_header])
    is_quoted = how.form.quoted if how.form.quoted is not None else usual == "," or delimiter != "\t"
    split = _split_quoted if is_quoted else _split
    names: tuple[Column, ...] | None = None
    for number, cells in split(chain([first], texts), delimiter):
        if names is None and how.has_header:
            names = tuple(cell.strip() for cell in cells)
            continue
        names = names or tuple(range(len(cells)))
        if len(cells) == len(names):
            yield ShardRow(number, dict(zip(names, cells, strict=True)))
        else:
            problem = f"{len(cells)} fields, and the first line has {len(names)}; fix the line"
            yield ShardRow(number, {}, problem, delimiter.join(cells))


def _of_table(number: int, line: str | None) -> str:
    if line is None:
        raise csv.Error(f"line {number} is longer than {LONGEST:,} letters")
    return line


def _split(lines: Iterator[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, line.rstrip("\r\n").split(delimiter)


def _split_quoted(lines: Iterator[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(MAX_CELL)
    reader, first = csv.reader(lines, delimiter=delimiter, strict=True), 1  # a cell may hold several lines
    for cells in reader:
        if cells:
            yield first, cells
        first = reader.line_num + 1
