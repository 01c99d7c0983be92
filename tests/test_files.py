import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
from faults import content_of, unsafe_renames, was_killed, watched

import bertvision
from bertvision import files
from bertvision.errors import FolderError
from bertvision.files import (
    given_folder,
    locked,
    read_json,
    recover,
    remove_folder,
    sha256_of,
    whole_file,
    whole_folder,
    write_json,
    write_json_rows,
    write_text,
)


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


@pytest.fixture(params=["swaps", "renames"])
def system(request, monkeypatch):
    """A system that can exchange two names in one step, and one that cannot."""
    if request.param == "renames":
        monkeypatch.setattr(files, "swap", lambda one, other: False)
    return request.param


def fill(place, text):
    with whole_folder(place) as beside:
        write_text(beside / "one", text)
        write_text(beside / "deep" / "two", text)


def fill_given(place, text):
    with given_folder(place, own=["one", "deep"]) as beside:
        write_text(beside / "one", text)
        write_text(beside / "deep" / "two", text)


def written(text):
    return {"deep": None, "deep/two": text.encode(), "one": text.encode()}


@pytest.mark.parametrize("write", [fill, fill_given])
def test_a_folder_is_the_old_or_the_new_one_whenever_its_writer_is_killed(tmp_path, system, write):
    place, found, at = tmp_path / "out", [], 0
    while True:
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        write(place, "old")
        if not was_killed(tmp_path, lambda: write(place, "new"), at):
            break
        if system == "renames":
            recover(place)
        found.append(content_of(place))
        write(place, "newer")
        assert content_of(tmp_path) == {"out": None, **{f"out/{name}": each for name, each in written("newer").items()}}
        at += 1
    assert at > 15
    kinds = [written("old"), written("new")]
    assert [kinds.index(each) for each in found] == sorted(kinds.index(each) for each in found)
    assert {kinds.index(each) for each in found} == {0, 1}


def test_a_folder_is_there_or_not_whenever_its_removal_is_killed(tmp_path):
    place, at = tmp_path / "out", 0
    fill(place, "old")
    while was_killed(tmp_path, lambda: remove_folder(place), at):
        assert not place.exists() or content_of(place) == written("old")
        remove_folder(place)
        assert names_in(tmp_path) == []
        fill(place, "old")
        at += 1
    assert at > 5
    assert names_in(tmp_path) == []


def test_a_file_is_the_old_or_the_new_one_whenever_its_writer_is_killed(tmp_path):
    path, at = tmp_path / "a" / "file", 0
    while was_killed(tmp_path, lambda: write_text(path, "new"), at):
        assert not path.exists() or path.read_text() in ("old", "new")
        write_text(path, "old")
        assert names_in(path.parent) == ["file"]
        at += 1
    assert at == 4  # open, sync, rename, sync


def test_what_gets_a_name_is_on_the_disk_and_its_name_is_soon(tmp_path, system):
    with watched(tmp_path) as watch:
        for text in ("old", "new"):
            write_text(tmp_path / "a" / "b" / "file", text)
            fill(tmp_path / "a" / "folder", text)
        remove_folder(tmp_path / "a" / "folder")
    assert sum(each.what in ("rename", "swap") for each in watch.operations) > 8
    assert unsafe_renames(watch.operations) == []


def write_half(path, then):
    with whole_file(path) as beside:
        beside.write_text("half")
        then()


def test_a_file_whose_writer_raises_leaves_nothing_beside_it(tmp_path):
    with pytest.raises(ZeroDivisionError):
        write_half(tmp_path / "file", lambda: 1 / 0)
    assert names_in(tmp_path) == []


def test_other_files_of_a_given_folder_stay(tmp_path, system):
    place = tmp_path / "out"
    fill_given(place, "old")
    (place / "thesis").mkdir()
    (place / "thesis" / "chapter.txt").write_text("years of work")
    (place / "notes.txt").write_text("mine")
    (place / "link").symlink_to("notes.txt")
    with given_folder(place, own=["one", "deep"]) as beside:
        write_text(beside / "one", "new")
        (place / "late.txt").write_text("mine too")
    assert names_in(place) == ["late.txt", "link", "notes.txt", "one", "thesis"]
    assert (place / "thesis" / "chapter.txt").read_text() == "years of work"
    assert (place / "link").readlink() == Path("notes.txt")
    assert names_in(tmp_path) == ["out"]


@pytest.mark.parametrize("lock", [locked, given_folder])
def test_the_second_of_two_is_refused_in_one_line(tmp_path, lock):
    place = tmp_path / "out"
    with lock(place), pytest.raises(FolderError, match="out: another bertvision is working in it; wait"), lock(place):
        pass
    with lock(place):
        pass
    assert content_of(tmp_path) == {"out": None}


def fail_in(folder, *names):
    with locked(folder):
        for name in names:
            (folder / name).touch()
        raise KeyError


def test_folders_that_were_made_for_work_that_fails_go_unless_they_hold_something(tmp_path):
    place = tmp_path / "runs" / "mine"
    with pytest.raises(KeyError):
        fail_in(place)
    assert names_in(tmp_path) == []
    with pytest.raises(KeyError):
        fail_in(place, "file")
    assert names_in(place) == ["file"]


def test_a_folder_that_was_there_stays_when_work_in_it_fails(tmp_path):
    with pytest.raises(KeyError):
        fail_in(tmp_path)
    assert tmp_path.is_dir()


def test_a_folder_that_cannot_be_replaced_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FolderError, match="give a folder in it, such as new"), given_folder(Path()):
        pass


def test_a_folder_that_was_removed_meanwhile_is_told(tmp_path):
    with pytest.raises(FolderError, match="out: was removed while it was being written to"), locked(tmp_path / "out"):
        shutil.rmtree(tmp_path / "out")
    with pytest.raises(FolderError, match="out: was removed while it was being written to"):
        write_half(tmp_path / "out" / "file", lambda: shutil.rmtree(tmp_path / "out"))
    assert names_in(tmp_path) == []


def test_nothing_but_files_py_writes_renames_or_removes():
    """Of libraries that write by themselves, what they write is given a place by `whole_file` or `whole_folder`."""
    raw = re.compile(
        r"\bos\.(replace|rename|remove|unlink|fsync)\b|rmtree|\.(write_bytes|write_text|unlink|rename|touch)\("
        r"|open\([^)]*[\"'][wax]b?[\"']"
    )
    allowed = {
        "accounting.py": "/proc",
        "checkpoint.py": "the rights of a file that is being written",
        "corpus.py": "in a folder that is being filled",
        "onnx_export.py": "in a folder that is being filled",
        "load.py": "in a folder that is being filled",
        "run_folder.py": "a lock that nobody holds",
        "api.py": "a folder that lasts as long as an object",
    }
    paths = [path for path in Path(bertvision.__file__).parent.rglob("*.py") if path.name != "files.py"]
    assert len(paths) > 100
    found = {path.name for path in paths if raw.search(path.read_text(encoding="utf-8"))}
    assert found == set(allowed)
