"""`bertvision.train`: one call from a file to models that can be saved and loaded."""

import re
import subprocess
import sys

import pytest
import torch
from scipy.stats import binomtest
from torch import nn

import bertvision
from bertvision.errors import DataError, FolderError, SettingsError

TINY = {
    "windows": {"max_length": 16},
    "finetune": {"fractions": [1], "batch": {"windows": 4}},
    "heads": {"epochs": 1, "batch": {"windows": 4}},
    "device": "cpu",
}


class FirstLayers(nn.Module):
    """A pooler of a user's own: the mean of the first two states."""

    def __init__(self, hidden):
        super().__init__()
        self.features = hidden
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, states, mask, segments):
        return self.scale * states[:, :2].mean(dim=1)


@pytest.fixture
def reviews(tmp_path):
    rows = [("the weir was built", "old"), ("who built the river", "new"), ("stone by the river", "old")] * 8
    path = tmp_path / "reviews.csv"
    path.write_text("review,age\n" + "".join(f"{text},{label}\n" for text, label in rows))
    return path


@pytest.fixture
def train(reviews, encoder_folder):
    def call(**more):
        given = {"text": "review", "label": "age", "encoder": str(encoder_folder), "settings": TINY} | more
        return bertvision.train(reviews, task="classification", **given)

    return call


def test_one_call_trains_scores_reports_and_saves_what_load_reads(train, tmp_path):
    result = train(heads=["learned_pooling", "last_linear"])
    assert set(result.scores) == {"majority", "encoder", "learned_pooling", "last_linear", "last_regression"}
    assert all(0 <= each["accuracy"] <= 100 for each in result.scores.values())
    assert repr(result).endswith(": majority, encoder, learned_pooling, last_linear, last_regression)")
    assert result.best in set(result.scores) - {"majority"}
    assert result.report().read_text().startswith("<!doctype html>")
    saved = result.save(tmp_path / "saved", "learned_pooling")
    said, again = result.load("learned_pooling")("the old weir"), bertvision.load(saved, device="cpu")("the old weir")
    assert again.label == said.label
    assert again.probabilities == pytest.approx(said.probabilities, rel=1e-4)
    with pytest.raises(FolderError, match="hannah/weir: the hub did not take it"):  # tests are offline
        result.push("hannah/weir", "learned_pooling")


def test_one_head_may_be_given_by_its_name_alone(train):
    assert set(train(heads="last_linear").scores) == {"majority", "encoder", "last_linear", "last_regression"}


def test_scores_are_numbers_that_show_their_interval_and_their_number_of_rows(train):
    result = train(heads=["learned_pooling", "last_linear"])
    for name, scores in result.scores.items():
        accuracy = scores["accuracy"]
        exact = binomtest(round(accuracy / 20), 5).proportion_ci()
        assert accuracy.interval == pytest.approx((100 * exact.low, 100 * exact.high)), name
        assert (accuracy.examples, scores["macro_f1"].interval) == (5, None)
        assert re.fullmatch(r"[\d.]+ \(95% interval [\d.]+ to [\d.]+, 5 examples\)", repr(accuracy))
        assert repr(scores["macro_f1"]).endswith(" (no interval: 5 examples)")
    assert result.best in ("encoder", "last_linear", "last_regression")  # five rows tell no models apart


def test_without_a_dev_file_a_fifth_of_the_examples_is_scored_and_not_learned_from(train):
    data = train(heads=["last_linear"]).records[0].data
    assert (data["train"].examples, data["dev"].examples) == (19, 5)


def test_the_folder_lasts_as_long_as_the_result_unless_one_is_named(train, tmp_path):
    result = train(heads=["last_linear"])
    folder = result.folder
    assert folder.is_dir()
    del result
    assert not folder.exists()
    assert train(heads=["last_linear"], out=tmp_path / "run").folder == tmp_path / "run"
    assert (tmp_path / "run" / "records").is_dir()


def test_a_call_that_cannot_read_its_data_leaves_no_folder(reviews, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for out in (None, tmp_path / "runs" / "mine"):
        with pytest.raises(DataError):
            bertvision.train(reviews, task="classification", text="colour", out=out)
    assert list(tmp_path.iterdir()) == [reviews]


def test_a_pooler_given_as_a_module_learns_beside_the_catalogs_and_is_loaded_with_it(train, tmp_path):
    mine = FirstLayers(32)
    result = train(heads=["learned_pooling"], poolers={"mine": mine}, out=tmp_path / "run")
    assert {"mine", "learned_pooling"} <= set(result.scores)
    assert mine.scale.item() == 1  # the caller's own module is a start, not what is trained
    saved = result.save(tmp_path / "saved", "mine")
    with pytest.raises(SettingsError, match=r"FirstLayers.*bertvision\.load\(folder, pooler="):
        bertvision.load(saved, device="cpu")
    said = result.load("mine")("the old weir").probabilities
    loaded = bertvision.load(saved, device="cpu", pooler=FirstLayers(32))
    assert loaded("the old weir").probabilities == pytest.approx(said, rel=1e-4)
    assert loaded.served.engine.model.head.pooler.scale.item() != 1


def test_a_pooler_without_features_and_a_name_that_is_taken_are_refused(train):
    with pytest.raises(SettingsError, match="Linear: a pooler needs `features`"):
        train(poolers={"mine": nn.Linear(2, 2)})
    with pytest.raises(SettingsError, match="two heads are called 'last_linear'"):
        train(heads=["last_linear"], poolers={"last_linear": FirstLayers(32)})


class OneState(FirstLayers):
    def forward(self, states):
        return states


class AllLayers(FirstLayers):
    def forward(self, states, mask, segments):
        return states


class Pairs(FirstLayers):
    def forward(self, states, mask, segments):
        return states[:, 0], mask


@pytest.mark.parametrize(
    ("pooler", "told"),
    [
        (OneState, r"OneState: forward\(states, mask, segments\) fails \(TypeError: .* return \[2, 1, 32\]"),
        (AllLayers, r"gives \[2, 3, 1, 32\] for states of \[2, 3, 1, 32\]; return \[2, 1, 32\]: batch, tokens"),
        (Pairs, r"Pairs: forward\(states, mask, segments\) gives tuple"),
    ],
)
def test_a_pooler_that_makes_something_else_of_states_is_refused_in_a_line_before_any_training(
    train, tmp_path, pooler, told
):
    with pytest.raises(SettingsError, match=told) as refused:
        train(poolers={"mine": pooler(32)}, out=tmp_path / "run")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run" / "encoder").exists()


def test_a_model_that_the_result_does_not_have_is_named_with_those_it_has(train):
    with pytest.raises(SettingsError, match="no model 'lst' in this result; known: encoder, last_linear"):
        train(heads=["last_linear"]).load("lst")


def test_a_callback_without_its_method_is_refused_before_anything_is_read():
    code = "import bertvision; bertvision.train('nowhere.csv', task='classification', callbacks=[print])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # without beartype
    assert "SettingsError: callbacks: <built-in function print> has no method on_point(point)" in done.stderr
