import pickle
import subprocess
import sys
from pathlib import PureWindowsPath

import pytest

import bertvision
from bertvision.errors import FolderError, SettingsError
from bertvision.hub import find_model_folder
from bertvision.model_config import best_model
from bertvision.model_folder import read_model_config
from bertvision.records import write_record


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("no_such_folder", "no such folder"),
        ("some/where/else", "no such folder"),
        ("nobody/nothing", "HF_HUB_OFFLINE forbids"),  # as tests do
    ],
)
def test_what_is_no_model_is_refused_in_one_line(model, message):
    with pytest.raises(FolderError, match=message) as caught:
        bertvision.load(model)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(FolderError, match=r"no model\.json in it"):
        bertvision.load(tmp_path)


def test_a_missing_model_folder_is_called_missing_and_a_near_one_is_named(tmp_path):
    (tmp_path / "last_linear").mkdir()
    with pytest.raises(FolderError, match="last_linaer: no such folder; did you mean `last_linear`"):
        read_model_config(tmp_path / "last_linaer")
    with pytest.raises(FolderError, match=r"nothing: no such folder; give OUT of a run, OUT/heads/"):
        read_model_config(tmp_path / "nothing")


def test_a_name_that_is_no_model_is_told_which_models_ship():
    with pytest.raises(FolderError, match="^basic: no such folder; give `default` or `base`, OUT of a run"):
        bertvision.load("basic")


def test_a_loaded_model_prints_as_one_line_that_says_what_it_is(make_folder):
    folder = make_folder("squad2", (), "last_linear")
    assert repr(bertvision.load(folder)) == f"Reader(task='squad2', folder={str(folder)!r})"


def test_a_precision_that_there_is_none_of_is_refused():
    code = "import bertvision; bertvision.load('nowhere', precision='banana')"  # here, beartype would refuse it first
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith("precision 'banana' is unknown; choose auto, float32, bf16")


@pytest.mark.usefixtures("no_network")
def test_a_hub_id_without_a_network_is_refused_at_once_with_what_to_do():
    with pytest.raises(FolderError, match="cannot be reached .*HF_HUB_OFFLINE.*; give `default` or a MODEL_DIR$"):
        bertvision.load("nobody/nothing")


def test_a_hub_id_is_known_by_its_parts_whatever_stands_between_those_of_a_path():
    with pytest.raises(FolderError, match="^hannah/weir: no such folder, never downloaded"):
        find_model_folder(PureWindowsPath("hannah/weir"))


def test_a_hub_id_is_downloaded_without_anything_that_could_be_run(make_folder, monkeypatch):
    asked = []

    def download(hub_id, allow_patterns, ignore_patterns, local_files_only):
        asked.append((hub_id, allow_patterns))
        return str(make_folder())

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert bertvision.load("hannah/weir")("who?", "the weir").score is not None
    ((hub_id, patterns),) = asked
    assert hub_id == "hannah/weir"
    assert not {"*.bin", "*.pt", "*.py", "*"} & set(patterns)


@pytest.mark.parametrize(
    ("task", "labels", "kind"),
    [("squad1", (), "Reader"), ("ner", ("O", "B-A"), "Tagger"), ("sst2", ("bad", "good"), "Classifier")],
)
def test_the_task_decides_what_is_loaded(make_folder, task, labels, kind):
    assert type(bertvision.load(make_folder(task, labels), device="cpu")).__name__ == kind


def test_load_is_imported_when_it_is_used():
    code = "import sys, bertvision; 'load' in dir(bertvision); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_folder_of_several_runs_names_them(make_record, tmp_path):
    for variant in ("small", "deep"):
        write_record(tmp_path / variant / "records", make_record())
    with pytest.raises(FolderError, match=rf"holds the runs deep, small; give one, such as {tmp_path}/deep$"):
        bertvision.load(tmp_path)


def test_a_model_stands_for_itself_whatever_else_lies_in_its_folder(make_record, tmp_path):
    (tmp_path / "model.json").write_text("{}")
    write_record(tmp_path / "later" / "records", make_record())
    assert best_model(tmp_path) == tmp_path


def test_a_run_folder_stands_for_its_best_model_that_can_be_loaded(make_record, tmp_path):
    # The ensemble scores best and has no folder of its own; the second seed's stages lie below `seeds`.
    rows = [
        ("encoder", 1.0, 1, 60.0),
        ("worse", 1.0, 1, 50.0),
        ("better", None, 2, 70.0),
        ("encoder+better", 1.0, 1, 90.0),
    ]
    for row, fraction, seed, exact in rows:
        write_record(
            tmp_path / "records", make_record(model=row, fraction=fraction, seed=seed, scores={"exact": exact})
        )
    for place in ("encoder/1", "heads/1/worse"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "model.json").write_text("{}")
    assert best_model(tmp_path) == tmp_path / "encoder" / "1"
    later = tmp_path / "seeds" / "2" / "heads" / "given" / "better"
    later.mkdir(parents=True)
    (later / "model.json").write_text("{}")
    assert best_model(tmp_path) == later
    assert best_model(later) == later
    with pytest.raises(SettingsError, match=r"seeds/2/heads/given/better/model\.json: "):
        bertvision.load(tmp_path)


def test_the_folder_of_a_run_that_was_stopped_is_called_unfinished(tmp_path):
    (tmp_path / "experiment.json").write_text("{}")
    with pytest.raises(FolderError, match=r"its run is not finished; the same `bertvision run` goes on with it"):
        bertvision.load(tmp_path)


def test_a_model_that_has_answered_can_be_pickled_without_its_weights(make_shared):
    reader = bertvision.load(make_shared(), device="cpu")
    classifier = bertvision.load(make_shared("sst2", ("bad", "good")), device="cpu")
    calls = ((reader, ("who built the weir?", "the weir was built in 1887")), (classifier, ("the weir",)))
    for model, given in calls:
        expected = model(*given)
        content = pickle.dumps(model)
        assert b"torch" not in content.replace(b"torch_model", b"")
        assert len(content) < 2000
        assert pickle.loads(content)(*given) == expected
