import hashlib
import json
import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import bertvision
from bertvision.cli import app
from bertvision.errors import FolderError, SettingsError
from bertvision.records import DataFile, write_record

QUESTION, CONTEXT = "who built the weir?", "the weir was built in 1887 by hannah coyle. the river was by the stone"


@pytest.fixture
def reader(make_folder):
    return bertvision.load(make_folder(), device="cpu")


class FakeClient:
    """Records what is asked of the hub."""

    def __init__(self, error=None):
        self.calls, self.files, self.error = [], {}, error

    def create_repo(self, repo_id, *, private, exist_ok):
        self.calls.append(("create_repo", repo_id, private, exist_ok))

    def upload_folder(self, *, repo_id, folder_path, commit_message):
        if self.error:
            raise self.error
        self.calls.append(("upload_folder", repo_id))
        self.files = {path.name: path.read_bytes() for path in Path(folder_path).iterdir()}
        return f"hub/{repo_id}/commit/1"


def test_a_saved_model_answers_alike_wherever_it_is_moved(reader, make_folder, tmp_path):
    expected = reader(QUESTION, CONTEXT, top_k=5)
    reader.save_pretrained(tmp_path / "saved")
    shutil.move(tmp_path / "saved", tmp_path / "elsewhere")
    shutil.rmtree(reader.served.folder)
    moved = bertvision.load(tmp_path / "elsewhere", device="cpu")
    assert moved(QUESTION, CONTEXT, top_k=5) == expected


def test_a_head_is_saved_with_its_encoder(make_folder, encoder_folder, tmp_path):
    folder = make_folder()
    config = json.loads((folder / "model.json").read_text())
    alone = tmp_path / "out" / "heads" / "1" / "learned_pooling"
    alone.mkdir(parents=True)
    shutil.copy(folder / "head.safetensors", alone)
    (alone / "model.json").write_text(json.dumps({**config, "encoder": str(encoder_folder)}))
    reader = bertvision.load(alone, device="cpu", allow_outside=True)
    expected = reader(QUESTION, CONTEXT)
    reader.save_pretrained(tmp_path / "saved")
    shutil.rmtree(encoder_folder)
    assert bertvision.load(tmp_path / "saved", device="cpu")(QUESTION, CONTEXT) == expected
    assert json.loads((tmp_path / "saved" / "model.json").read_text())["encoder"] == "."


def test_the_calibration_of_the_run_is_saved(make_folder, make_record, tmp_path):
    folder = make_folder(place="out/heads/1/learned_pooling")
    write_record(tmp_path / "out" / "records", make_record())
    bertvision.load(folder, device="cpu").save_pretrained(tmp_path / "saved")
    content = json.loads((tmp_path / "saved" / "calibration.json").read_text())
    assert content == {"threshold": 1.5, "temperature": 2.0, "official_threshold": None, "min_accuracy": None}
    assert bertvision.load(tmp_path / "saved", device="cpu").served.calibration.threshold == 1.5


def test_a_folder_that_holds_something_is_never_replaced(reader, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear hannah")
    with pytest.raises(FolderError, match="is not empty"):
        reader.save_pretrained(tmp_path / "mine")
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear hannah"
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="is a file"):
        reader.save_pretrained(tmp_path / "file")


def test_the_card_shows_the_records_scores_and_names_no_folder_of_its_author(reader, make_record, tmp_path):
    data = {"train": DataFile(name="/home/hannah/weirs.json", sha256="ab" * 32, examples=1234, dropped=0, windows=9)}
    record = make_record().model_copy(update={"data": data})
    reader.save_pretrained(tmp_path / "saved", [record])
    card = (tmp_path / "saved" / "README.md").read_text()
    _, front, body = card.split("---\n", 2)
    assert yaml.safe_load(front) == {
        "library_name": "bertvision",
        "pipeline_tag": "question-answering",
        "tags": ["bertvision"],
    }
    assert "| f1 | 60 |" in body
    assert "`weirs.json`, 1,234 examples" in body
    assert "/home" not in card
    assert "tuned for 1 epoch." in body


def test_the_card_of_a_run_is_written_from_its_own_record(make_folder, make_record, tmp_path):
    folder = make_folder(place="out/heads/1/learned_pooling")
    write_record(tmp_path / "out" / "records", make_record())
    bertvision.load(folder, device="cpu").save_pretrained(tmp_path / "saved")
    assert "Scores of weirs" in (tmp_path / "saved" / "README.md").read_text()


def test_without_records_a_card_has_no_scores(reader, tmp_path):
    reader.save_pretrained(tmp_path / "saved")
    assert "Scores" not in (tmp_path / "saved" / "README.md").read_text()


@pytest.mark.parametrize(
    ("task", "labels", "pipeline"),
    [("ner", ("O", "B-A"), "token-classification"), ("sst2", ("bad", "good"), "text-classification")],
)
def test_every_kind_of_model_can_be_saved(make_folder, tmp_path, task, labels, pipeline):
    model = bertvision.load(make_folder(task, labels), device="cpu")
    model.save_pretrained(tmp_path / "saved")
    assert f"pipeline_tag: {pipeline}" in (tmp_path / "saved" / "README.md").read_text()
    assert bertvision.load(tmp_path / "saved", device="cpu")("the weir") == model("the weir")


def test_the_hub_gets_the_whole_folder(reader, tmp_path):
    client = FakeClient()
    assert reader.push_to_hub("hannah/weir", private=True, client=client) == "hub/hannah/weir/commit/1"
    assert client.calls == [("create_repo", "hannah/weir", True, True), ("upload_folder", "hannah/weir")]
    reader.save_pretrained(tmp_path / "saved")
    assert b'bertvision.load("hannah/weir")' in client.files["README.md"]
    (tmp_path / "saved" / "README.md").write_bytes(client.files["README.md"])
    assert client.files == {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()}
    assert {"model.json", "head.safetensors", "model.safetensors", "calibration.json", "README.md"} <= set(client.files)


def test_what_the_hub_refuses_is_told_in_one_line(reader):
    with pytest.raises(FolderError, match=r"hannah/weir: the hub did not take it \(no token here\)"):
        reader.push_to_hub("hannah/weir", client=FakeClient(OSError("no token\nhere")))


@pytest.mark.usefixtures("no_network")
def test_without_a_network_the_hubs_silence_is_told_in_one_line(reader):
    with pytest.raises(FolderError, match=r"hannah/weir: the hub did not take it .*`save_pretrained` writes a folder"):
        reader.push_to_hub("hannah/weir")


def test_a_name_that_is_no_repository_is_refused_before_anything_is_done(reader):
    client = FakeClient()
    with pytest.raises(SettingsError, match="'weir' is no place on the hub; give OWNER/NAME"):
        reader.push_to_hub("weir", client=client)
    assert client.calls == []


def test_without_a_token_nothing_is_sent(reader, monkeypatch):
    monkeypatch.setattr("bertvision.serving.model.hub_problem", lambda: None)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(FolderError, match="there is no token; log in with `hf auth login`, or set HF_TOKEN"):
        reader.push_to_hub("hannah/weir")


def test_a_saved_model_keeps_its_card(make_folder, make_record, tmp_path):
    folder = make_folder(place="out/heads/1/learned_pooling")
    write_record(tmp_path / "out" / "records", make_record())
    bertvision.load(folder, device="cpu").save_pretrained(tmp_path / "saved")
    card = (tmp_path / "saved" / "README.md").read_text() + "\nIt was made for the weir's keepers.\n"
    (tmp_path / "saved" / "README.md").write_text(card)
    client = FakeClient()
    bertvision.load(tmp_path / "saved", device="cpu").push_to_hub("hannah/weir", client=client)
    assert client.files["README.md"].decode() == card.replace("THIS_FOLDER_OR_HUB_ID", "hannah/weir")
    assert "Scores of weirs" in card


def call(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_save_writes_a_folder_that_stands_alone(make_folder, tmp_path):
    folder = make_folder("classification", ("bad", "good"), place="out/encoder/1")
    expected = bertvision.load(folder, device="cpu")(["the weir", "in 1887"])
    shown = call("save", folder, "--out", tmp_path / "saved")
    assert shown.exit_code == 0, shown.output
    shutil.rmtree(tmp_path / "out")
    shutil.move(tmp_path / "saved", tmp_path / "elsewhere")
    assert bertvision.load(tmp_path / "elsewhere", device="cpu")(["the weir", "in 1887"]) == expected
    files = {path.name: path.stat().st_size for path in (tmp_path / "elsewhere").iterdir()}
    assert {name: int(size.replace(",", "")) for name, size in map(str.split, shown.stdout.splitlines()[1:])} == files
    hashes = json.loads((tmp_path / "elsewhere" / "sha256.json").read_text())["sha256"]
    assert hashes.keys() == files.keys() - {"README.md", "config.json", "model.json", "sha256.json"}
    for name, found in hashes.items():
        assert hashlib.sha256((tmp_path / "elsewhere" / name).read_bytes()).hexdigest() == found
    assert {"model.safetensors", "tokenizer.json", "head.safetensors", "calibration.json"} <= hashes.keys()


def test_a_head_whose_encoder_lies_elsewhere_is_saved_where_that_is_allowed(make_folder, encoder_folder, tmp_path):
    folder = make_folder()
    config = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**config, "encoder": str(encoder_folder)}))
    refused = call("save", folder, "--out", tmp_path / "saved")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--allow-outside" in refused.stderr
    assert not (tmp_path / "saved").exists()
    assert call("save", folder, "--out", tmp_path / "saved", "--allow-outside", "--json").exit_code == 0
    shutil.rmtree(encoder_folder)
    bertvision.load(tmp_path / "saved", device="cpu")


def test_save_replaces_nothing(make_folder, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear hannah")
    assert "is not empty; choose a new folder" in call("save", make_folder(), "--out", tmp_path / "mine").stderr
