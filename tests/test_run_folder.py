import pytest

from bertvision.run_folder import resumable


def test_a_stage_that_ended_well_leaves_nothing(tmp_path):
    with resumable(tmp_path / "unfinished" / "finetune", {}) as saved:
        saved.mkdir()
    assert list(tmp_path.iterdir()) == []


def stop(stage):
    with resumable(stage, {}) as saved:
        saved.mkdir()
        raise KeyboardInterrupt


def test_a_stage_that_was_stopped_is_kept_also_where_another_one_ends(tmp_path):
    unfinished = tmp_path / "unfinished"
    with pytest.raises(KeyboardInterrupt):
        stop(unfinished / "heads-1")
    with resumable(unfinished / "finetune", {}):
        (unfinished / "finetune" / "progress").mkdir()
    assert [place.name for place in unfinished.iterdir()] == ["heads-1"]
    assert (unfinished / "heads-1" / "progress").is_dir()
