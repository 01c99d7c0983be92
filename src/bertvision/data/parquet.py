"""Rows of a Parquet file, some at a time: what a cell becomes is counted before it is made.

A file of some hundred bytes can name one long text a million times. So texts are read as numbers into a list of
different texts, as most files hold them anyway, and are written out only where all of them are not too much.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertvision.data.sources import LIMIT, most_unpacked
from bertvision.errors import DataError, MissingExtraError, reason_of

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
