import gzip
import json
import lzma

import pyarrow
import pyarrow.parquet
import pytest

from bertvision.data.documents import read_documents, sentences_of
from bertvision.errors import DataError

TEXT = "The weir broke. Hannah built it again.\n\nIt holds."


def packed(path, raw):
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opener(path, "wb") as file:
        file.write(raw)
    return str(path)


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_a_plain_file_is_one_document_and_a_line_of_jsonl_too(tmp_path, ending):
    plain = packed(tmp_path / f"one.txt{ending}", TEXT.encode())
    lines = packed(
        tmp_path / f"two.jsonl{ending}", b"\n".join(json.dumps({"text": each}).encode() for each in ("a b", "c"))
    )
    assert list(read_documents([plain, lines])) == [TEXT, "a b", "c"]


@pytest.mark.parametrize(("name", "between"), [("notes.csv", ","), ("semicolons.csv", ";"), ("notes.tsv", "\t")])
def test_a_row_of_a_table_is_a_document(tmp_path, name, between):
    rows = [("id", "note"), ("1", '"the weir broke. Hannah\n\nbuilt it"' if name != "notes.tsv" else "a"), ("2", "b")]
    (tmp_path / name).write_text("\n".join(between.join(row) for row in rows))
    found = list(read_documents([str(tmp_path / name)], "note"))
    assert found == ["the weir broke. Hannah\n\nbuilt it" if name != "notes.tsv" else "a", "b"]


def test_a_table_without_the_column_or_with_a_bad_row_says_what_to_do(tmp_path):
    path = tmp_path / "notes.csv"
    path.write_text("id,note\n1,a\n2,b,c\n")
    with pytest.raises(DataError, match="no column 'text' among id, note; name it with `data.text_column=COLUMN`"):
        list(read_documents([str(path)]))
    with pytest.raises(DataError, match="line 3: 3 fields, and the header names 2; fix the line"):
        list(read_documents([str(path)], "note"))


def test_rows_without_text_are_no_documents(tmp_path):
    """Pre-training holds its last document out: a blank one left it without a held-out loss."""
    path = tmp_path / "notes.csv"
    path.write_text("text,id\na,1\n,2\nb,3\n  ,4\n", encoding="utf-8-sig")
    assert list(read_documents([str(path)])) == ["a", "b"]


@pytest.mark.parametrize("cell", [1.5, b"a", ["a", "b"]])
def test_cells_of_parquet_that_are_no_text_are_refused(tmp_path, cell):
    path = tmp_path / "notes.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": [None, cell]}), path)
    with pytest.raises(DataError, match=f"row 2: column `text` has type {type(cell).__name__}; give it as text"):
        list(read_documents([str(path)]))


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path):
    for name in ("b.txt", "a.txt", ".hidden"):
        (tmp_path / name).write_text(f"text of {name}")
    assert list(read_documents([str(tmp_path)])) == ["text of a.txt", "text of b.txt"]


def test_the_sample_has_the_passages_of_its_articles():
    documents = list(read_documents(["sample"]))
    assert len(documents) == 20
    assert all("\n\n" in each for each in documents)


def test_rows_of_the_hub_are_documents(monkeypatch):
    asked = []

    def load(*hub_id):
        asked.append(hub_id)
        return [{"page": "a b", "text": 1}, {"page": "c", "text": 2}]

    monkeypatch.setattr("bertvision.data.documents.load_hub_rows", load)
    assert list(read_documents(["owner/name/en", "owner/name:test"], "page")) == ["a b", "c", "a b", "c"]
    assert asked == [("owner/name", "en", "train"), ("owner/name", None, "test")]
    with pytest.raises(DataError, match="owner/name, row 0: no text under 'text'"):
        list(read_documents(["owner/name"]))


def test_sentences_end_at_points_and_blank_lines():
    assert sentences_of(TEXT) == ["The weir broke.", "Hannah built it again.", "It holds."]
    assert sentences_of("Mr. Coyle came\nhome.  He left") == ["Mr. Coyle came home.", "He left"]
    assert sentences_of(" \n\n \t") == []


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("a.txt", b"\xff\xfe\x00", "is not UTF-8 text"),
        ("a.txt", b"word\0word", "holds NUL bytes"),
        ("a.gz", b"no gzip", "the .gz file is damaged or cut off"),
        ("a.xz", lzma.compress(b"word " * 1000)[:40], "the .xz file is damaged or cut off"),
        ("a.jsonl", b"{", "line 1: is not JSON"),
        ("a.jsonl", b'{"txt": "a"}', "no text under 'text'; name its key with `data.text_column=KEY`"),
        ("a.jsonl", b'{"text": 3}', "no text under 'text'"),
        ("a.csv", b"text,id\na,1\ncaf\xe9,2\n", "line 3: column `text` is not UTF-8 text; .* in UTF-8"),
        ("a.csv", b"caf\xe9,text\na,b\n", "its header is not UTF-8 text"),
        ("a.csv", b'text\n"a"b\n', r"line 2: not quoted as CSV is \(.*\); fix it$"),
        ("a.csv", "text\na\n".encode("utf-16-le"), "like UTF-16 without a byte order mark; save the file as UTF-8$"),
        ("a.csv.xz", lzma.compress(b"text\na\n"), "a table is read as it is or packed as .gz; unpack it"),
    ],
)
def test_what_is_no_text_is_refused_in_one_line(tmp_path, name, raw, message):
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(DataError, match=message) as caught:
        list(read_documents([str(tmp_path / name)]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["bomb.txt.gz", "bomb.jsonl.xz"])
def test_a_packed_file_that_grows_as_no_text_does_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setenv("BERTVISION_MAX_UNPACKED", "1000")
    path = packed(tmp_path / name, b" " * 5000)
    with pytest.raises(DataError, match="more than 1,000 bytes when unpacked"):
        list(read_documents([path]))


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"cannot be read \(No such file"):
        list(read_documents([str(tmp_path / "none.txt")]))
    for path in ("books/none.csv", "books/none.txt", "books/none.jsonl.gz"):  # no data sets of the hub
        with pytest.raises(DataError, match=rf"^{path}: cannot be read \(No such file"):
            list(read_documents([path]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="an empty folder"):
        list(read_documents([str(tmp_path / "empty")]))
