"""The line from the default model on, here a tiny one."""

import pytest
import torch
from changes import save_as_changes

import bertvision
from bertvision.encoder import load
from bertvision.experiment import build_experiment
from bertvision.model_config import SHIPPED
from bertvision.model_folder import load_model
from bertvision.predictions.logits import load_logits
from bertvision.stages.run import run

pytestmark = pytest.mark.flow


@pytest.fixture
def settings(squad_file, encoder_folder, tmp_path, monkeypatch):
    """An experiment that starts from the default model: a tuned tiny encoder, saved as changes."""
    monkeypatch.setattr(load, "pypi_encoder", lambda name: str(encoder_folder))
    data = str(squad_file())
    own = {
        "data": {"train": data, "dev": data},
        "windows": {"max_length": 24, "stride": 4},
        "heads": {"train": ["last_linear"], "batch": {"windows": 4}},
        "device": "cpu",
    }
    finetune = {"fractions": [1], "batch": {"windows": 2}, "lr": 1e-3, "head": "learned_pooling"}
    run(build_experiment({**own, "encoder": "default", "finetune": finetune}), tmp_path / "first")
    reader = bertvision.load(tmp_path / "first" / "encoder" / "1", device="cpu")
    save_as_changes(reader, tmp_path / "default_model", "default")
    monkeypatch.setitem(SHIPPED, "default", tmp_path / "default_model")
    return {**own, "encoder": "default-model", "finetune": {**finetune, "head": None}}


@pytest.mark.parametrize(("fractions", "folder"), [((), "given"), ((0,), "0")])
def test_the_default_models_own_head_is_the_encoders_row(settings, questions, tmp_path, fractions, folder):
    records = run(build_experiment(settings, [f"finetune.fractions={list(fractions)}"]), tmp_path / "out")
    assert [record.model for record in records] == ["encoder", "last_linear"]
    assert records[0].config["encoder"] == "default-model"
    _, logits = load_logits(tmp_path / "out" / "predictions" / folder / "encoder" / "logits.safetensors")
    reader = bertvision.load("default", device="cpu")
    windows = reader.served.answering(questions).windows
    torch.testing.assert_close(torch.tensor(logits), torch.tensor(reader.served.logits(windows)), rtol=1e-4, atol=1e-4)


def test_a_head_on_the_default_model_as_given_finds_it_again(settings, tmp_path):
    run(build_experiment(settings, ["finetune.fractions=[]"]), tmp_path / "out")
    head = load_model(tmp_path / "out" / "heads" / "given" / "last_linear")
    assert head.config.encoder == "default-model"
    expected = load_model(tmp_path / "default_model").encoder.model.state_dict()
    assert all(torch.equal(head.encoder.model.state_dict()[name], expected[name]) for name in expected)
