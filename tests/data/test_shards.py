"""Shards are read row by row: what is wrong with a line concerns that line alone."""

import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest

from bertvision.data import shards
from bertvision.data.shards import ShardFormat, read_shard
from bertvision.data.text_format import TextFormat
from bertvision.errors import DataError

USUAL = ShardFormat(TextFormat(), known_header=("text",))


def read(path, how=USUAL):
    seen = []
    rows = list(read_shard(path, how, seen.append))
    assert sum(seen) == path.stat().st_size
    return rows


def cells(rows):
    return [(row.line, dict(row.cells)) for row in rows if not row.problem]


@pytest.mark.parametrize("ending", [".jsonl", ".ndjson.gz"])
def test_json_lines_are_rows_and_blank_lines_are_none(tmp_path, ending):
    path, content = tmp_path / f"a{ending}", b'{"text": "weir"}\r\n\n{"text": "\xe2\x80\xa8"}'
    path.write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
    assert cells(read(path)) == [(1, {"text": "weir"}), (3, {"text": "\u2028"})]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("weir", "not JSON"),
        ("[1]", "got list"),
        ('{"a": 1, "a": 2}', "stands twice"),
        ("[" * 10**5, "nested too deeply"),
    ],
)
def test_a_line_that_is_no_row_is_kept_with_what_is_wrong(tmp_path, line, problem):
    (tmp_path / "a.jsonl").write_text(f'{{"text": "weir"}}\n{line}\n{{"text": "stone"}}\n')
    first, bad, last = read(tmp_path / "a.jsonl")
    assert (bad.line, bad.raw) == (2, line)
    assert problem in bad.problem
    assert cells([first, last]) == [(1, {"text": "weir"}), (3, {"text": "stone"})]


def test_a_line_that_would_fill_the_memory_is_no_row(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "LONGEST", 30)
    lines = [{"text": "weir"}, {"text": "w" * 100}, {"text": "stone"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = read(tmp_path / "a.jsonl")
    assert cells(rows) == [(1, {"text": "weir"}), (3, {"text": "stone"})]
    assert (rows[1].line, rows[1].problem) == (2, "the line is longer than 30 letters; cut it")


@pytest.mark.parametrize(("ending", "between"), [(".csv", ","), (".csv", ";"), (".tsv", "\t")])
def test_tables_have_their_header_and_delimiter_recognised(tmp_path, ending, between):
    lines = [("key", "text"), ("1", "weir"), ("2",), ("3", "stone")]
    (tmp_path / f"a{ending}").write_text("".join(between.join(line) + "\n" for line in lines))
    rows = read(tmp_path / f"a{ending}")
    assert cells(rows) == [(2, {"key": "1", "text": "weir"}), (4, {"key": "3", "text": "stone"})]
    assert "1 fields, and the first line has 2" in rows[1].problem


def test_a_quoted_cell_may_hold_lines_and_columns_may_have_numbers(tmp_path):
    (tmp_path / "a.csv").write_text('1,"in the\nriver"\n2,weir\n')
    rows = read(tmp_path / "a.csv", ShardFormat(TextFormat(), has_header=False))
    assert cells(rows) == [(1, {0: "1", 1: "in the\nriver"}), (3, {0: "2", 1: "weir"})]


def test_encodings_are_those_of_the_mark_or_as_named(tmp_path):
    (tmp_path / "a.jsonl").write_bytes('{"text": "é"}\n'.encode("utf-16"))
    (tmp_path / "b.jsonl").write_bytes('{"text": "é"}\n'.encode("cp1252"))
    assert cells(read(tmp_path / "a.jsonl")) == [(1, {"text": "é"})]
    assert cells(read(tmp_path / "b.jsonl", ShardFormat(TextFormat(encoding="cp1252")))) == [(1, {"text": "é"})]


def test_parquet_is_read_by_rows(tmp_path):
    table = pyarrow.table({"text": [f"weir {n}" for n in range(2000)]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    rows = read(tmp_path / "a.parquet")
    assert (len(rows), rows[1999].line, rows[1999].cells) == (2000, 2000, {"text": "weir 1999"})


def test_a_file_that_is_cut_off_gives_its_rows_before_it_is_refused(tmp_path):
    lines = "".join(f'{{"text": "{number * 7919}"}}\n' for number in range(20_000)).encode()
    packed = gzip.compress(lines)
    (tmp_path / "a.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    rows = read_shard(tmp_path / "a.jsonl.gz", USUAL, lambda more: None)
    assert next(rows).cells == {"text": "0"}  # so it is not read as a whole
    with pytest.raises(DataError, match="damaged or cut off"):
        list(rows)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.txt.gz", b"no gzip", "damaged or cut off"),
        ("a.csv", b'text\n"weir\n', "not quoted as CSV is"),
        ("a.docx", b"weir", "cannot tell its format"),
        ("a.parquet", b"weir", "cannot be read as Parquet"),
    ],
)
def test_what_is_no_shard_is_refused_in_one_line(tmp_path, name, content, problem):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=problem):
        read(tmp_path / name)
