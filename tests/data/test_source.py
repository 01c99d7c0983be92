import gzip
import json

import pytest

from bertvision.data.conll import read_ner
from bertvision.data.sources import HubId, parse_hub_id, parse_source
from bertvision.data.squad import read_squad
from bertvision.errors import DataError, SettingsError


@pytest.mark.parametrize(
    ("source", "whole", "part"),
    [
        ("rows.csv", "rows.csv", None),
        ("rows.csv[:8000]", "rows.csv", slice(None, 8000)),
        ("rows.csv[8000:]", "rows.csv", slice(8000, None)),
        ("a[1:2].csv", "a[1:2].csv", None),
        ("a/b:train[2:-1]", "a/b:train", slice(2, -1)),
        ("rows.csv[3]", "rows.csv[3]", None),
    ],
)
def test_a_slice_after_a_source_is_parted_from_it(source, whole, part):
    assert parse_source(source) == (whole, part)


def test_a_file_that_has_a_slice_in_its_name_is_read(monkeypatch, tmp_path):
    (tmp_path / "a.conll[:1]").write_text("x O\n\ny O\n")
    monkeypatch.chdir(tmp_path)
    assert len(read_ner("a.conll[:1]").examples) == 2


def test_a_slice_counts_good_examples(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("a O\n\nbad\n\nb O\n\nc O\n")
    split = read_ner(f"{path}[1:]", on_bad="drop")
    assert ([each.words for each in split.examples], split.dropped) == ([("b",), ("c",)], 1)
    assert split.name == f"{path}[1:]"


def test_a_slice_of_questions_is_taken():
    assert read_squad("sample:dev[2:5]").examples == read_squad("sample:dev").examples[2:5]


def test_an_empty_slice_is_refused(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("a O\n")
    with pytest.raises(DataError, match=r"a\.conll\[5:\]: no example in this slice of 1; fix its numbers"):
        read_ner(f"{path}[5:]")


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("a/b", ("a/b", None, None)),
        ("a/b:test", ("a/b", None, "test")),
        ("a/b/c:test", ("a/b", "c", "test")),
        ("a", None),
        ("a/b/c/d", None),
    ],
)
def test_a_hub_id_has_an_owner_a_name_and_perhaps_more(source, parts):
    assert parse_hub_id(source) == (None if parts is None else HubId(*parts))


def test_a_file_of_the_same_name_is_no_hub_id(monkeypatch, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_text(json.dumps({}))
    monkeypatch.chdir(tmp_path)
    assert parse_hub_id("a/b") is None


def test_a_gzip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "bomb.conll.gz"
    path.write_bytes(gzip.compress(bytes(100_000_001)))
    with pytest.raises(
        DataError, match=r"bomb\.conll\.gz: its [\d,]+ bytes become more than 100,000,000 when unpacked"
    ):
        read_ner(str(path))


def test_the_limit_on_unpacking_can_be_set(tmp_path, monkeypatch):
    path = tmp_path / "a.conll.gz"
    path.write_bytes(gzip.compress(b"a O\n\nb O\n"))
    monkeypatch.setenv("BERTVISION_MAX_UNPACKED", "8")
    with pytest.raises(DataError, match="become more than 8 when unpacked.* set BERTVISION_MAX_UNPACKED to more bytes"):
        read_ner(str(path))
    monkeypatch.setenv("BERTVISION_MAX_UNPACKED", "9")
    assert len(read_ner(str(path)).examples) == 2
    monkeypatch.setenv("BERTVISION_MAX_UNPACKED", "much")
    with pytest.raises(SettingsError, match="BERTVISION_MAX_UNPACKED is 'much'; give a number of bytes"):
        read_ner(str(path))
