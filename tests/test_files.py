import hashlib
import json

import pytest

from bertvision.errors import FolderError
from bertvision.files import read_json, sha256_of, whole_folder, write_json, write_json_rows, write_text


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_text_file_is_written_with_its_folders_and_nothing_beside_it(tmp_path):
    path = tmp_path / "a" / "b" / "text.txt"
    write_text(path, "Œuvre\n")
    assert path.read_bytes() == "Œuvre\n".encode()
    assert names_in(path.parent) == ["text.txt"]


def test_a_text_file_replaces_the_one_before(tmp_path):
    for text in ("long before\n", "now\n"):
        write_text(tmp_path / "text.txt", text)
    assert (tmp_path / "text.txt").read_text() == "now\n"


def test_a_file_that_cannot_be_written_whole_leaves_the_one_before(tmp_path):
    path = tmp_path / "data.json"
    write_json(path, {"a": 1})
    with pytest.raises(UnicodeEncodeError):
        write_json(path, {"a": "\ud800"})
    with pytest.raises(TypeError):
        write_json(path, {"a": {1, 2}})
    assert read_json(path) == {"a": 1}


def test_json_is_written_in_the_order_given_and_read_back(tmp_path):
    content = {"z": [1, 2.5, None, True], "a": {"é": "ü"}}
    write_json(tmp_path / "data.json", content)
    assert (tmp_path / "data.json").read_text(encoding="utf-8") == json.dumps(
        content, indent=2, ensure_ascii=False
    ) + "\n"
    assert list(read_json(tmp_path / "data.json").items()) == list(content.items())


@pytest.mark.parametrize(
    "content", [{}, {"q1": "1887"}, {'"q"\n': 'Œ "\n', "é": None, "list": [{"text": "ü", "p": 0.1}]}]
)
def test_rows_of_json_are_read_back_and_stand_on_a_line_each(tmp_path, content):
    write_json_rows(tmp_path / "data.json", content)
    assert list(read_json(tmp_path / "data.json").items()) == list(content.items())
    assert len((tmp_path / "data.json").read_text(encoding="utf-8").split("\n")) == 3 + max(len(content), 1)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "no such file; is the folder a finished one?"),
        (b'{"a": ', "damaged ("),
        (b"", "damaged ("),
        (b'"\xff"', "damaged ("),
    ],
)
def test_a_json_file_that_is_missing_or_damaged_is_named_in_one_line(tmp_path, content, problem):
    path = tmp_path / "data.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FolderError) as caught:
        read_json(path)
    assert str(caught.value).startswith(f"{path}: {problem}")
    assert "\n" not in str(caught.value)


def test_a_whole_folder_takes_its_place_when_the_block_ends(tmp_path):
    place = tmp_path / "runs" / "out"
    with whole_folder(place) as beside:
        (beside / "deep").mkdir()
        (beside / "deep" / "file").write_text("new")
        assert not place.exists()
    assert (place / "deep" / "file").read_text() == "new"
    assert names_in(place.parent) == ["out"]


def test_a_whole_folder_replaces_what_was_there(tmp_path):
    place = tmp_path / "out"
    place.mkdir()
    (place / "old").write_text("old")
    with whole_folder(place) as beside:
        (beside / "new").write_text("new")
        assert names_in(place) == ["old"]
    assert names_in(place) == ["new"]
    assert names_in(tmp_path) == ["out"]


def cut_short(place, error):
    with whole_folder(place) as beside:
        (beside / "half").write_text("half")
        raise error


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_whole_folder_leaves_nothing_at_its_place_when_the_block_raises(tmp_path, error):
    with pytest.raises(error):
        cut_short(tmp_path / "out", error)
    assert not (tmp_path / "out").exists()


def test_a_whole_folder_leaves_what_was_there_when_the_block_raises(tmp_path):
    place = tmp_path / "out"
    place.mkdir()
    (place / "old").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        cut_short(place, KeyboardInterrupt)
    assert (names_in(place), (place / "old").read_text()) == (["old"], "old")


def test_a_whole_folder_starts_empty_after_one_that_was_cut_short(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        cut_short(tmp_path / "out", KeyboardInterrupt)
    with whole_folder(tmp_path / "out") as beside:
        assert names_in(beside) == []
        (beside / "file").write_text("new")
    assert names_in(tmp_path / "out") == ["file"]
    assert names_in(tmp_path) == ["out"]


def test_a_files_hash_is_that_of_its_bytes(tmp_path):
    raw = bytes(range(256)) * 5_000
    (tmp_path / "file").write_bytes(raw)
    assert sha256_of(tmp_path / "file") == hashlib.sha256(raw).hexdigest()
