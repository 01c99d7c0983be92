"""Bytes of a text file -> its text, and what stands between the cells of its lines."""

import codecs
import csv
import io
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from bertvision.errors import DataError, reason_of

BYTE_ORDER_MARKS = {  # UTF-32's first, whose mark begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: "utf-8",
}
DELIMITERS = (",", ";", "\t")
NAMES = {",": "`,`", ";": "`;`", "\t": "a tab"}
BEGINNING = 1000  # bytes by which UTF-16 without a mark is known
FIRST_LINE = 100_000  # letters in which a header ends
SAY_ENCODING = "save the file as UTF-8, or name its encoding, such as `data.encoding=cp1252`"


class TextFormat(NamedTuple):
    """How a table is written; None: by its name, its first bytes and its header."""

    quoted: bool | None = None
    delimiter: str | None = None
    encoding: str | None = None


USUAL = TextFormat()


def known_encoding(name: str) -> str | None:
    """Return an encoding's name as Python has it, None for UTF-8, which is tried anyway."""
    try:
        "a".encode(name)  # also refuses codecs of bytes, such as base64
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        raise ValueError(f"no encoding {name!r}; give one such as cp1252, latin-1 or utf-16-le") from None
    return None if found in ("utf-8", "utf-8-sig") else found


def decode_text(path: Path, raw: bytes, encoding: str | None) -> str:
    """Return a file's text: as its byte order mark says, else in the encoding that is named, else UTF-8."""
    named = next((name for mark, name in BYTE_ORDER_MARKS.items() if raw.startswith(mark)), encoding)
    if named is None or named == "utf-8":
        _refuse_unmarked(path, raw)
        # Bytes that are no UTF-8 stay recognisable, so that their row and column can be named.
        return raw.decode("utf-8-sig", errors="surrogateescape")
    try:
        return raw.decode(named).removeprefix("\ufeff")
    except UnicodeError as error:
        raise DataError(f"{path}: is not {named} text ({reason_of(error)}); {SAY_ENCODING}") from None


def _refuse_unmarked(path: Path, raw: bytes) -> None:
    """Refuse UTF-16 without a mark: every other byte of most of its letters is 0."""
    beginning = raw[:BEGINNING]
    if beginning.count(0) <= len(beginning) // 4:
        return
    order = "be" if beginning[::2].count(0) > beginning[1::2].count(0) else "le"
    raise DataError(
        f"{path}: looks like UTF-16 without a byte order mark; save the file as UTF-8, or say "
        f"`data.encoding=utf-16-{order}`"
    )


def recognise_delimiter(text: str, usual: str, known_headers: Sequence[Collection[str]]) -> str:
    """Return what stands between the cells: what its name says, unless the header is known with another one alone."""
    for delimiter in (usual, *DELIMITERS):
        names = set(_first_cells(text, delimiter))
        if any(names.issuperset(known) for known in known_headers if known):
            return delimiter
    return usual


def other_delimiter(text: str, delimiter: str) -> str:
    """Return what an error on missing columns says, where cells seem to have something else between them."""
    counts = {each: len(_first_cells(text, each)) for each in DELIMITERS if each != delimiter}
    best = max(counts, key=lambda each: counts[each])
    if counts[best] < 2 or len(_first_cells(text, delimiter)) > 1:
        return ""
    setting = f"`data.delimiter={json.dumps(best)}`"
    cells = ", ".join(f"{cell:.30}" for cell in _first_cells(text, best)[:8])
    found = f"; with {NAMES[best]} between cells it has {counts[best]} columns ({cells})"
    return f"{found}: correct data.columns, or {setting}"


def _first_cells(text: str, delimiter: str) -> list[str]:
    """Return the cells of the first line that is not blank."""
    reader = csv.reader(io.StringIO(text[:FIRST_LINE], newline=""), delimiter=delimiter)
    try:
        return [cell.strip() for cell in next((cells for cells in reader if any(cells)), [])]
    except csv.Error:  # a quote that is never closed: whoever reads the whole file says so
        return []
