"""A small encoder that learns from a larger one's logits."""

import shutil

import pytest
import torch

from bertvision.encoder.load import load_encoder
from bertvision.errors import FolderError, SettingsError
from bertvision.experiment import build_experiment
from bertvision.model_folder import load_model
from bertvision.stages.run import run_finetune
from bertvision.states.live import states_of
from bertvision.training.checkpoint import fingerprint
from bertvision.training.device import choose_compute

pytestmark = pytest.mark.flow


@pytest.fixture
def settings(tiny):
    return {
        **tiny,
        "finetune": {"fractions": [8], "batch": {"windows": 2}, "lr": 3e-3, "dropout": 0.0},
    }


@pytest.fixture
def teacher(settings, tmp_path):
    (place,) = run_finetune(build_experiment(settings), tmp_path / "teacher")
    return place


def taught(settings, teacher, **more):
    return build_experiment(
        {**settings, "finetune": {**settings["finetune"], "teacher": {"model": str(teacher), **more}}}
    )


def probabilities(place, windows):
    model = load_model(place)
    compute = choose_compute("cpu", "auto")
    model.encoder.model.eval()
    with torch.no_grad():
        states = states_of(model.encoder, windows, torch.arange(len(windows)).numpy(), compute)
        return model.head(*states.seen).softmax(dim=1)


def test_a_pupil_without_labels_answers_as_its_teacher_does(settings, teacher, tmp_path, make_task):
    untaught = {**settings, "finetune": {**settings["finetune"], "fractions": [0]}}
    (start,) = run_finetune(build_experiment(untaught), tmp_path / "start")
    (pupil,) = run_finetune(taught(settings, teacher, loss_weight=1), tmp_path / "pupil")
    wanted, before, after = (probabilities(place, make_task("span")[0]) for place in (teacher, start, pupil))
    assert (after - wanted).abs().mean() < (before - wanted).abs().mean() / 2


def test_of_several_teachers_a_pupil_learns_the_mean(settings, teacher, tmp_path, make_task):
    other = {**settings, "seeds": [7], "finetune": {**settings["finetune"], "lr": 1e-3}}
    (second,) = run_finetune(build_experiment(other), tmp_path / "second")
    both = settings["finetune"] | {
        "teacher": {"model": [str(teacher), str(second)], "loss_weight": 1},
        "fractions": [24],
    }
    (pupil,) = run_finetune(build_experiment({**settings, "finetune": both}), tmp_path / "pupil")
    windows = make_task("span")[0]
    one, two, learned = (probabilities(place, windows) for place in (teacher, second, pupil))
    mean = ((one.log() + two.log()) / 2).softmax(dim=1)
    far = [(learned - each).abs().mean() for each in (mean, one, two)]
    assert far[0] < far[1]
    assert far[0] < far[2]


def test_an_empty_list_of_teachers_is_refused(settings):
    with pytest.raises(SettingsError, match="teacher.model"):
        build_experiment({**settings, "finetune": {**settings["finetune"], "teacher": {"model": []}}})


def test_a_pupil_is_trained_again_for_another_teacher(settings, teacher, tmp_path):
    other = {**settings, "finetune": {**settings["finetune"], "lr": 1e-4}}
    (second,) = run_finetune(build_experiment(other), tmp_path / "second")
    (pupil,) = run_finetune(taught(settings, teacher), tmp_path / "pupil")
    first = fingerprint(load_encoder(str(pupil)).model)
    shutil.rmtree(teacher)
    second.rename(teacher)
    with pytest.raises(FolderError, match="teacher"):
        run_finetune(taught(settings, teacher), tmp_path / "pupil")
    (again,) = run_finetune(taught(settings, teacher), tmp_path / "again")
    assert fingerprint(load_encoder(str(again)).model) != first


def test_a_teacher_of_another_task_is_refused(settings, teacher, tmp_path):
    with pytest.raises(SettingsError, match="is a model of squad2; give one of this task"):
        run_finetune(taught({**settings, "task": "answerability"}, teacher), tmp_path / "out")


def test_a_teacher_with_another_vocabulary_is_refused(settings, teacher, tmp_path, spelling_encoder):
    place = tmp_path / "spelling"
    spelling_encoder.model.save_pretrained(place)
    spelling_encoder.tokenizer.save_pretrained(place)
    with pytest.raises(SettingsError, match="has another vocabulary than .*; give a teacher with the same one"):
        run_finetune(taught({**settings, "encoder": str(place)}, teacher), tmp_path / "out")
