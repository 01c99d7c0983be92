"""Folders that somebody else made, which lead elsewhere or describe more than they hold."""

import json
import os
import shutil

import pytest

import bertvision
from bertvision.encoder.load import load_encoder
from bertvision.errors import EncoderError, FolderError, SettingsError
from bertvision.model_folder import load_model

OUTSIDE = r"which lies outside its folder; if you trust that, say --allow-outside \(in Python allow_outside=True\)"


def change(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def in_run(make_folder, tmp_path):
    """A head and an encoder of one run, each in its place; gives the head's folder."""
    whole = make_folder()
    head = tmp_path / "out" / "heads" / "1" / "learned_pooling"
    head.mkdir(parents=True)
    for name in ("head.safetensors", "model.json"):
        shutil.copy(whole / name, head)
    shutil.copytree(whole, tmp_path / "out" / "encoder" / "1")
    change(head / "model.json", encoder="../../../encoder/1", encoder_is_path=True)
    return head


def test_a_head_reads_the_encoder_of_its_run_also_where_the_run_was_moved(in_run, tmp_path):
    assert bertvision.load(in_run, device="cpu").has_null
    shutil.move(tmp_path / "out", tmp_path / "moved")
    (tmp_path / "link").symlink_to(tmp_path / "moved")
    assert bertvision.load(tmp_path / "link" / "heads" / "1" / "learned_pooling", device="cpu").has_null


@pytest.mark.parametrize("place", ["{tmp}/tiny", "../../../../tiny", "../../../seeds", "../../../encoder/../../tiny"])
def test_an_encoder_elsewhere_needs_to_be_allowed(in_run, encoder_folder, tmp_path, place):
    change(in_run / "model.json", encoder=place.format(tmp=tmp_path))
    with pytest.raises(FolderError, match=OUTSIDE):
        bertvision.load(in_run, device="cpu")
    if place.endswith("tiny"):
        assert bertvision.load(in_run, device="cpu", allow_outside=True).has_null


def test_a_hub_id_in_a_model_needs_to_be_allowed(make_folder, monkeypatch):
    folder = make_folder()
    change(folder / "model.json", encoder="nobody/nothing", encoder_is_path=False)
    monkeypatch.setattr("bertvision.encoder.load.download", lambda *given: pytest.fail("asked the hub"))
    with pytest.raises(FolderError, match=f"names the encoder 'nobody/nothing', {OUTSIDE}"):
        bertvision.load(folder, device="cpu")


def test_changes_to_another_encoder_than_the_default_one_need_to_be_allowed(make_folder, monkeypatch):
    folder = make_folder()
    about = {"base": "nobody/nothing", "fingerprint": "0", "sha256": {}}
    (folder / "changes.json").write_text(json.dumps(about))
    monkeypatch.setattr("bertvision.encoder.load.download", lambda *given: pytest.fail("asked the hub"))
    with pytest.raises(FolderError, match=f"its changes belong to 'nobody/nothing', {OUTSIDE}"):
        bertvision.load(folder, device="cpu")


def test_a_manifest_names_files_of_its_own_folder_alone(make_folder):
    folder = make_folder()
    about = {"base": "default", "fingerprint": "0", "sha256": {"../../secret": "0"}}
    (folder / "changes.json").write_text(json.dumps(about))
    with pytest.raises(FolderError, match="which is no file of the folder"):
        bertvision.load(folder, device="cpu")


@pytest.mark.parametrize("name", ["model.json", "head.safetensors", "config.json", "model.safetensors", "more.txt"])
def test_a_link_that_leads_out_of_the_folder_needs_to_be_allowed(make_folder, tmp_path, name):
    folder, elsewhere = make_folder(), tmp_path / "elsewhere"
    elsewhere.write_bytes((folder / name).read_bytes() if (folder / name).exists() else b"")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(elsewhere)
    with pytest.raises(FolderError, match=rf"{name}: is a link to .*elsewhere, {OUTSIDE}"):
        bertvision.load(folder, device="cpu")
    assert bertvision.load(folder, device="cpu", allow_outside=True).has_null


@pytest.mark.parametrize("name", ["heads/1/learned_pooling/head.safetensors", "encoder/1/model.safetensors"])
def test_a_link_that_leads_out_of_a_head_or_of_its_runs_encoder_needs_to_be_allowed(in_run, tmp_path, name):
    path, elsewhere = tmp_path / "out" / name, tmp_path / "elsewhere"
    shutil.move(path, elsewhere)
    path.symlink_to(elsewhere)
    with pytest.raises(FolderError, match=rf"{path.name}: is a link to .*elsewhere, {OUTSIDE}"):
        load_model(in_run)  # as `predict` does
    assert load_model(in_run, allow_outside=True).config.layers


def test_links_to_the_blobs_of_a_download_are_followed(make_folder, tmp_path):
    place = tmp_path / "models--hannah--weir"
    shutil.move(make_folder(), place / "snapshots" / "c0ffee")
    (place / "blobs").mkdir()
    for path in list((place / "snapshots" / "c0ffee").iterdir()):
        shutil.move(path, place / "blobs" / path.name)
        path.symlink_to(f"../../blobs/{path.name}")
    assert bertvision.load(place / "snapshots" / "c0ffee", device="cpu").has_null


def test_a_pipe_in_a_folder_is_not_waited_for(make_folder):
    folder = make_folder()
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    with pytest.raises(FolderError, match=r"config\.json: is neither a file nor a folder"):
        bertvision.load(folder, device="cpu")


@pytest.mark.parametrize(
    ("changes", "error", "problem"),
    [
        ({"layers": 10**9}, SettingsError, "less than or equal to 10000"),
        ({"layers": 9_999}, FolderError, r"says layers: 9999, head\.safetensors holds [\d,]+ numbers"),
        ({"hidden": 10**12}, FolderError, "says hidden: 1000000000000"),
        ({"hidden": 31}, FolderError, "weights of another model"),
        ({"labels": ["a", "b", "c"], "task": "sst2"}, FolderError, "weights of another model"),
        ({"head": {"name": "x", "pooler": {"kind": "adapter", "width": 10**11}}}, FolderError, "says width: 1000"),
        ({"head": {"name": "x", "pooler": {"kind": "ladder"}}}, FolderError, "weights of another model"),
    ],
)
def test_sizes_are_compared_with_the_weights_before_anything_is_built(
    make_folder, changes, error, problem, monkeypatch
):
    folder = make_folder()
    change(folder / "model.json", **changes)
    monkeypatch.setattr("bertvision.model_folder.load_encoder", lambda *given, **more: pytest.fail("built"))
    with pytest.raises(error, match=problem) as caught:
        bertvision.load(folder, device="cpu")
    assert "\n" not in str(caught.value)


def test_an_encoder_that_asks_for_chunks_of_another_length_than_its_rows_answers_all_the_same(make_folder):
    folder = make_folder()
    expected = bertvision.load(folder, device="cpu")("who?", "the weir was built")
    change(folder / "config.json", chunk_size_feed_forward=7)
    assert bertvision.load(folder, device="cpu")("who?", "the weir was built") == expected


def test_a_head_that_reads_more_states_than_its_encoder_gives_is_refused(make_folder):
    folder = make_folder()
    change(folder / "model.json", state_layers=[0, 1, 2] * 50)
    with pytest.raises(FolderError, match="its head reads 3 states of width 32, its encoder gives 3 of 32"):
        bertvision.load(folder, device="cpu")


def test_a_name_that_is_too_long_for_a_path_is_refused_in_a_line():
    name = "nobody/" + "x" * 5000
    with pytest.raises(FolderError, match="is no place of a folder") as refused:
        bertvision.load(name, device="cpu")
    assert len(str(refused.value)) < 200
    with pytest.raises(EncoderError, match="is no place of a folder"):
        load_encoder(name)
