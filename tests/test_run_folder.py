import json

import pytest

from bertvision.errors import FolderError
from bertvision.run_folder import resumable, tidy, write_settings


@pytest.fixture
def stage(tmp_path):
    return tmp_path / "unfinished" / "finetune"


def stop(stage, settings_fingerprint=None, results=()):
    with resumable(stage, settings_fingerprint or {}, results) as saved:
        saved.mkdir()
        raise KeyboardInterrupt


def test_a_stage_that_ended_well_leaves_nothing(stage, tmp_path):
    with resumable(stage, {}, []) as saved:
        saved.mkdir()
    assert list(tmp_path.iterdir()) == []


def test_a_stage_that_was_stopped_is_kept_also_where_another_one_ends(stage):
    other = stage.with_name("heads-1")
    with pytest.raises(KeyboardInterrupt):
        stop(other)
    with resumable(stage, {}, []) as saved:
        saved.mkdir()
    assert list(stage.parent.iterdir()) == [other]
    assert (other / "progress").is_dir()


def test_a_stage_of_other_settings_is_refused(stage):
    with pytest.raises(KeyboardInterrupt):
        stop(stage, {"lr": 1})
    with pytest.raises(FolderError, match="lr was 1 and is now 2"):
        stop(stage, {"lr": 2})


def test_progress_without_its_signature_is_nobodys(stage):
    with pytest.raises(KeyboardInterrupt):
        stop(stage, {"lr": 1})
    (stage / "settings_fingerprint.json").unlink()
    with resumable(stage, {"lr": 2}, []) as saved:
        assert not saved.exists()


def test_a_stage_that_was_killed_after_its_last_result_is_tidied_away(stage, tmp_path):
    results = [tmp_path / "encoder" / name for name in ("0.5", "1")]
    with pytest.raises(KeyboardInterrupt):
        stop(stage, {}, results)
    for result in results:
        tidy(tmp_path)
        assert (stage / "progress").is_dir()
        write_settings(result, {})
    tidy(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["encoder"]


def test_a_stage_knows_what_it_was_last_asked_for(stage, tmp_path):
    for name in ("1", "2"):
        with pytest.raises(KeyboardInterrupt):
            stop_again(stage, [tmp_path / "encoder" / name])
    assert json.loads((stage / "results.json").read_text()) == ["encoder/2"]


def stop_again(stage, results):
    with resumable(stage, {}, results):
        raise KeyboardInterrupt


def test_what_a_killed_run_left_beside_its_files_is_tidied_away(tmp_path):
    left = ["encoder/.1.bv-part/model.json", "seeds/2/heads/1/.x.bv-old/model.json", "states/1/.bv-lock"]
    left += ["records/.x-1-seed1.json.bv-part", ".experiment.json.bv-part", ".bertvision-abc/sample"]
    mine = ["encoder/1/model.json", "seeds/2/heads/1/x/model.json", "states/1/manifest.json", ".thesis.part"]
    for name in (*left, *mine):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    tidy(tmp_path)
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()} == set(mine)
