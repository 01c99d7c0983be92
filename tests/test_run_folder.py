import json
from pathlib import Path

import pytest

from bertvision.errors import FolderError
from bertvision.run_folder import FILES, parse_run_path, resumable, tidy, write_settings

PAGE = Path(__file__).parents[1] / "docs" / "run_folder.md"


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


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("runs/a/encoder/0.3", ("runs/a", "encoder", "0.3", "encoder", "")),
        ("runs/a/heads/given/mix4", ("runs/a", "heads", "given", "mix4", "")),
        ("runs/a/seeds/2/heads/1/mix4", ("runs/a/seeds/2", "heads", "1", "mix4", "")),
        ("runs/a/predictions/1e-05/encoder+mix4", ("runs/a", "predictions", "1e-05", "encoder+mix4", "")),
        ("runs/a/predictions/1/encoder/seen", ("runs/a", "predictions", "1", "encoder", "seen")),
        ("runs/a/predictions_held_out/1/mix4", ("runs/a", "predictions_held_out", "1", "mix4", "")),
        ("predictions/a/heads/1/mix4", ("predictions/a", "heads", "1", "mix4", "")),
    ],
)
def test_a_path_says_where_in_a_run_folder_it_lies(path, expected):
    found = parse_run_path(Path(path))
    assert (str(found.root), *found[1:]) == expected
    assert str(found.out) == expected[0].removesuffix("/seeds/2")


@pytest.mark.parametrize("path", ["runs/a", "runs/a/records", "runs/a/predictions/1", "runs/a/heads/1", "my-model"])
def test_other_paths_say_nothing_of_a_run(path):
    assert parse_run_path(Path(path)) is None


def test_a_heads_path_leads_to_its_predictions():
    found = parse_run_path(Path("a/seeds/2/heads/1/mix4"))
    assert found.is_model
    assert str(found.predictions) == "a/seeds/2/predictions/1/mix4"
    assert str(found.held_out) == "a/held_out.json"


def test_the_page_about_run_folders_names_every_file():
    page = PAGE.read_text(encoding="utf-8")
    for folder, names in FILES.items():
        assert (
            f"`OUT/{folder.replace('FRACTION', '<fraction>').replace('HEAD', '<head>').replace('MODEL', '<model>')}"
            in page
        )
        assert [name for name in names if "*" not in name and f"{name}`" not in page] == []
