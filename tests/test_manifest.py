import json

import pytest
from faults import was_killed

from bertvision.errors import FolderError
from bertvision.files import write_json
from bertvision.manifest import changed_file, check_manifest, write_manifest


@pytest.fixture
def folder(tmp_path):
    """A folder of four files and their hashes."""
    place = tmp_path / "model"
    for name in ("head.safetensors", "tokenizer.json", "calibration.json", "model.json"):
        write_json(place / name, {"name": name})
    write_manifest(place)
    return place


def flip(path, bit=100):
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["head.safetensors", "tokenizer.json", "calibration.json"])
@pytest.mark.parametrize("bit", [0, 63, 129])
def test_a_flipped_bit_is_told_in_one_line_with_the_files_name_and_the_cure(folder, name, bit):
    check_manifest(folder)
    flip(folder / name, bit)
    with pytest.raises(FolderError) as caught:
        check_manifest(folder)
    assert str(caught.value).startswith(f"{folder / name}: damaged (sha256 ")
    assert str(caught.value).endswith(f"; put it back from a copy, or delete {folder} and make it again")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_gone_is_told(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(FolderError, match=r"tokenizer\.json: is missing"):
        check_manifest(folder)


def test_only_files_that_are_read_are_looked_at(folder):
    flip(folder / "head.safetensors")
    check_manifest(folder, ["calibration.json"])
    with pytest.raises(FolderError, match="damaged"):
        check_manifest(folder, ["calibration.json", "head.safetensors"])


def test_settings_may_be_edited_and_files_added(folder):
    (folder / "model.json").write_text("{}")
    (folder / "README.md").write_text("mine")
    check_manifest(folder)


def test_a_folder_without_hashes_may_hold_anything(folder):
    (folder / "sha256.json").unlink()
    flip(folder / "head.safetensors")
    check_manifest(folder)
    with changed_file(folder, "calibration.json"):
        pass
    assert not (folder / "sha256.json").exists()


@pytest.mark.parametrize("content", ["", "[]", '{"format": 1}', '{"sha256": []}'])
def test_damaged_hashes_are_told(folder, content):
    (folder / "sha256.json").write_text(content)
    with pytest.raises(FolderError, match=r"sha256\.json: damaged"):
        check_manifest(folder)


def test_hashes_of_files_elsewhere_are_not_looked_at(folder, tmp_path):
    (tmp_path / "secret").write_text("1234")
    write_json(folder / "sha256.json", {"format": 1, "sha256": {"../secret": "0" * 64}})
    with pytest.raises(FolderError, match=r"model/secret: is missing"):
        check_manifest(folder)


def test_a_folder_whose_file_is_changed_can_be_read_whenever_that_is_killed(folder):
    def change():
        with changed_file(folder, "calibration.json"):
            write_json(folder / "calibration.json", {"threshold": at})

    at = 0
    while was_killed(folder, change, at):
        check_manifest(folder)
        at += 1
    assert at > 8
    check_manifest(folder)
    assert json.loads((folder / "calibration.json").read_text()) == {"threshold": at}
    flip(folder / "calibration.json")
    with pytest.raises(FolderError, match="damaged"):
        check_manifest(folder)
