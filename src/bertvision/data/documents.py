"""Text to pre-train on -> documents -> sentences: files, packed or not, folders of them, or data sets of the hub.

A file is one document, its paragraphs parted by blank lines; so is a line of JSONL, and a row of a table. One document
at a time is in memory, of a table all of it.
"""

import gzip
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

from bertvision.data.passages import SENTENCE_END
from bertvision.data.sources import LIMIT, BadExampleError, is_unicode, load_hub_rows, most_unpacked, parse_hub_id
from bertvision.data.tables import ENDINGS, ending_of, open_table, place_of
from bertvision.errors import DataError
from bertvision.files import exists

SAMPLE = "sample"  # the passages that come with the package
OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
PARAGRAPH_END = re.compile(r"\n[^\S\n]*\n\s*")
TABLES = (".csv", ".tsv", ".parquet")
GIVE_TEXT = "give plain text or JSONL, also packed as .gz or .xz, or a table"


def read_documents(sources: Sequence[str], key: str = "text", without: Sequence[str] = ()) -> Iterator[str]:
    """Return the text of every document, in order; `key` names it in JSONL, in tables and in rows of the hub.

    Files `without` which they are read may lie in a folder of theirs, such as those that are held out.
    """
    left_out = {path.resolve() for source in without if exists(source) for path in files_of(source)}
    for source in sources:
        if source == SAMPLE:
            yield from _sample()
        elif ending_of(source) not in ENDINGS and not exists(source) and (hub := parse_hub_id(source)) is not None:
            rows = load_hub_rows(hub.dataset, hub.config, hub.split or "train")
            yield from (_text_of(row, key, f"{source}, row {number}") for number, row in enumerate(rows))
        else:
            for path in files_of(source):
                if path.resolve() not in left_out:
                    yield from _read_table(path, key) if ending_of(str(path)) in TABLES else _read(path, key)


def files_of(source: str) -> list[Path]:
    """Return the files that a source stands for: itself, or all those of a folder in the order of their names."""
    path = Path(source)
    if not path.is_dir():
        return [path]
    found = sorted(each for each in path.rglob("*") if each.is_file() and not each.name.startswith("."))
    if not found:
        raise DataError(f"{source}: an empty folder; {GIVE_TEXT}")
    return found


def sentences_of(document: str) -> list[str]:
    """Part a document into paragraphs at blank lines, and these into sentences."""
    sentences = []
    for paragraph in PARAGRAPH_END.split(document):
        text = " ".join(paragraph.split())
        ends = [found.end() for found in SENTENCE_END.finditer(text)]
        sentences += [text[start:end].strip() for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]
    return [each for each in sentences if each]


def _sample() -> Iterator[str]:
    content = json.loads((files("bertvision.sample") / "train.json").read_text(encoding="utf-8"))
    for article in content["data"]:
        yield "\n\n".join(paragraph["context"] for paragraph in article["paragraphs"])


def _read(path: Path, key: str) -> Iterator[str]:
    if path.suffix in OPENERS and ending_of(path.stem) in TABLES:
        raise DataError(f"{path}: a table is read as it is or packed as .gz; unpack it")
    with _opened(path) as file:
        if (path.with_suffix("") if path.suffix in OPENERS else path).suffix == ".jsonl":
            for number, line in enumerate(iter(lambda: _some(file.readline, path), b""), start=1):
                if line.strip():
                    yield _text_of(_parse(line, path, number), key, f"{path}, line {number}")
        elif text := _decode(_some(file.read, path), path).strip():
            yield text


def _read_table(path: Path, column: str) -> Iterator[str]:
    try:
        table = open_table(str(path), None, "train", known_headers=[(column,)])
    except DataError as error:  # an experiment's settings of tables are none here
        raise DataError(str(error).partition(", or say `data.")[0]) from None
    table = table.with_header() if table.names is None else table
    if not all(map(is_unicode, table.names or ())):
        raise _not_unicode(f"{path}: its header")
    if not table.has(column):
        raise DataError(f"{path}: no column {column!r} among {table.header}; name it with `data.text_column=COLUMN`")
    for line in table.lines:
        try:
            table.check(line)
        except BadExampleError as error:
            raise DataError(f"{line.where}: {error}") from None
        cell = table.cell(line, column)
        if cell is None:
            continue
        if not isinstance(cell, str):
            raise DataError(f"{line.where}: {place_of(column)} has type {type(cell).__name__}; give it as text")
        if not is_unicode(cell):
            raise _not_unicode(f"{line.where}: {place_of(column)}")
        if cell.strip():
            yield cell


def _not_unicode(where: str) -> DataError:
    return DataError(f"{where} is not UTF-8 text; {GIVE_TEXT}, in UTF-8")


def _some(read: Callable[[int], bytes], path: Path) -> bytes:
    """Read a file, or a line of it; a packed one only up to where no text would become so long."""
    if path.suffix not in OPENERS:
        return read(-1)
    limit = most_unpacked(path.stat().st_size)
    if len(raw := read(limit + 1)) > limit:
        raise DataError(
            f"{path}: a document in it has more than {limit:,} bytes when unpacked; if it is no bomb, unpack it "
            f"yourself, or set {LIMIT} to more bytes"
        )
    return raw


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as file:
            yield file
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile):
        raise DataError(f"{path}: the {path.suffix} file is damaged or cut off; get it again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); {GIVE_TEXT}") from None


def _decode(raw: bytes, path: Path) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _not_unicode(f"{path}:") from None
    if "\0" in text:
        raise DataError(f"{path}: holds NUL bytes, so it is no text; {GIVE_TEXT}")
    return text


def _parse(line: bytes, path: Path, number: int) -> object:
    try:
        return json.loads(_decode(line, path))
    except (ValueError, RecursionError):
        raise DataError(f"{path}, line {number}: is not JSON; give one object a line") from None


def _text_of(row: object, key: str, where: str) -> str:
    text = row.get(key) if isinstance(row, dict) else None
    if not isinstance(text, str) or not is_unicode(text):
        raise DataError(f"{where}: no text under {key!r}; name its key with `data.text_column=KEY`")
    return text
