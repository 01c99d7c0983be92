import json

import pytest

from bertvision.errors import SettingsError
from bertvision.model_config import Calibration
from bertvision.model_folder import read_model_config
from bertvision.records import write_record
from bertvision.serving.model import find_record, read_calibration

TUNED = {"f1": 60.0, "tuned_threshold": 1.5, "temperature": 2.0}  # as the records of `make_record` have them


def calibration_of(folder):
    return read_calibration(folder, read_model_config(folder))


def test_a_model_of_a_run_with_held_out_questions_has_its_records_calibration(make_folder, make_record, tmp_path):
    folder = make_folder(place="out/heads/1/learned_pooling")
    write_record(tmp_path / "out" / "records", make_record())
    write_record(tmp_path / "out" / "records", make_record(seed=2, scores={**TUNED, "tuned_threshold": 9.0}))
    assert calibration_of(folder) == Calibration(threshold=1.5, temperature=2.0)


def test_a_record_with_the_readers_scores_has_a_calibration_for_each_decoder(make_folder, make_record, tmp_path):
    folder = make_folder(place="out/heads/1/learned_pooling")
    scores = {**TUNED, "reader_tuned_threshold": -4.0, "reader_temperature": 3.0}
    write_record(tmp_path / "out" / "records", make_record(scores=scores))
    assert calibration_of(folder) == Calibration(threshold=-4.0, temperature=3.0, official_threshold=1.5)


def test_every_seed_has_its_own_calibration(make_folder, make_record, tmp_path):
    folder = make_folder(place="out/seeds/2/heads/1/learned_pooling")
    write_record(tmp_path / "out" / "records", make_record())
    assert calibration_of(folder) == Calibration()
    write_record(tmp_path / "out" / "records", make_record(seed=2, scores={**TUNED, "tuned_threshold": 9.0}))
    assert calibration_of(folder).threshold == 9.0


def test_an_encoder_has_the_calibration_of_its_own_row(make_folder, make_record, tmp_path):
    folder = make_folder(place="out/encoder/0.5")
    write_record(tmp_path / "out" / "records", make_record(model="encoder", fraction=0.5))
    assert calibration_of(folder).threshold == 1.5


@pytest.mark.parametrize(
    "changed", [{"scores": {"f1": 60.0}}, {"weights": "another"}, {"model": "mix4"}, {"fraction": 0.5}]
)
def test_without_a_fitting_record_the_threshold_is_the_experiments(make_folder, make_record, tmp_path, changed):
    folder = make_folder(place="out/heads/1/learned_pooling")
    write_record(tmp_path / "out" / "records", make_record(**changed))
    assert calibration_of(folder) == Calibration(threshold=0.0, temperature=1.0)


def test_the_file_beside_the_model_comes_first(make_folder, make_record, tmp_path):
    folder = make_folder(place="out/heads/1/learned_pooling")
    write_record(tmp_path / "out" / "records", make_record())
    (folder / "calibration.json").write_text(json.dumps({"threshold": -3.0, "temperature": 0.5}))
    assert calibration_of(folder) == Calibration(threshold=-3.0, temperature=0.5)


@pytest.mark.parametrize("content", [{"temperature": 0.0}, {"threshold": "low"}, {"limit": 1.0}])
def test_a_calibration_that_means_nothing_is_refused(make_folder, content):
    folder = make_folder()
    (folder / "calibration.json").write_text(json.dumps(content))
    with pytest.raises(SettingsError, match=r"calibration\.json"):
        calibration_of(folder)


def test_a_folder_outside_a_run_has_no_record(make_folder):
    folder = make_folder()
    assert find_record(folder, read_model_config(folder)) is None
