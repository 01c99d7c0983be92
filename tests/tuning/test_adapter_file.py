import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from bertvision.errors import EncoderError, FolderError, SettingsError
from bertvision.tuning.adapter_file import load_adapters, save_adapters
from bertvision.tuning.config import TuneConfig
from bertvision.tuning.tune import tune
from bertvision.tuning.variants import set_active

SETTINGS = [
    {"train": "none", "insert": "houlsby:4"},
    {"train": "none", "insert": "pfeiffer:4", "norms": False},
    {"train": "top:2", "insert": "lora:2"},
    {"train": "bitfit", "parasites": {"width": 4, "length": 9}},
    {"train": "all"},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_loaded_tuning_gives_the_same_states_exactly(make_model, settings, batch, shake, states_of, tmp_path):
    model, fresh = make_model(), make_model()
    tuned = tune(model, TuneConfig.model_validate(settings), seed=1, name="mine")
    shake(model)
    save_adapters(tmp_path / "mine.safetensors", model)
    loaded = load_adapters(tmp_path / "mine.safetensors", fresh, "yours")
    assert torch.equal(states_of(fresh, batch), states_of(model, batch))
    assert loaded.trained == tuned.trained


def test_every_kind_of_encoder_is_served(make_model, kind, batch, shake, states_of, tmp_path):
    model, fresh = make_model(kind), make_model(kind)
    tune(model, TuneConfig(train="none", insert="houlsby:4"), seed=1)
    shake(model)
    save_adapters(tmp_path / "a.safetensors", model)
    load_adapters(tmp_path / "a.safetensors", fresh)
    assert torch.equal(states_of(fresh, batch), states_of(model, batch))


def test_the_file_holds_adapters_and_norms_and_says_what_they_are(make_model, tmp_path):
    model = make_model()
    tune(model, TuneConfig(train="none", insert="houlsby:4"), seed=1, name="mine")
    save_adapters(tmp_path / "a.safetensors", model)
    tensors = load_file(tmp_path / "a.safetensors")
    adapters, norms = 3 * 2 * (2 * 32 * 4 + 4 + 32), (1 + 3 * 2) * 2 * 32
    assert sum(tensor.numel() for tensor in tensors.values()) == adapters + norms
    assert "encoder.layer.2.output.dropout.adapters.up.bias" in tensors
    with safe_open(tmp_path / "a.safetensors", framework="pt") as file:
        about = json.loads(file.metadata()["bertvision_tuning"])
    assert (about["model_type"], about["hidden_size"], about["blocks"]) == ("bert", 32, 3)
    assert about["tune"]["insert"] == "houlsby:4"


def test_several_files_are_loaded_side_by_side(make_model, batch, shake, states_of, tmp_path):
    model, fresh = make_model(), make_model()
    expected = {None: states_of(model, batch)}
    for seed, name in enumerate(("legal", "medical")):
        tune(model, TuneConfig(train="none", insert="houlsby:4"), seed=seed, name=name)
        shake(model, seed=seed)
        expected[name] = states_of(model, batch)
    for name in ("legal", "medical"):  # the one that does not act, too
        save_adapters(tmp_path / f"{name}.safetensors", model, name)
        load_adapters(tmp_path / f"{name}.safetensors", fresh, name)
    for name in ("legal", None, "medical", "legal"):
        set_active(fresh, name)
        assert torch.equal(states_of(fresh, batch), expected[name])


def test_a_name_is_used_once(make_model, tmp_path):
    model = make_model()
    tune(model, TuneConfig(train="none"), seed=1)
    save_adapters(tmp_path / "a.safetensors", model)
    with pytest.raises(SettingsError, match="used once, got 'tuned'; used: tuned"):
        load_adapters(tmp_path / "a.safetensors", model)


def test_another_kind_of_encoder_is_refused(make_model, tmp_path):
    model = make_model()
    tune(model, TuneConfig(train="none"), seed=1)
    save_adapters(tmp_path / "a.safetensors", model)
    with pytest.raises(EncoderError, match="model_type is bert, but this one's is roberta"):
        load_adapters(tmp_path / "a.safetensors", make_model("roberta"))


def test_other_weights_are_refused_unless_asked_for(make_model, tmp_path):
    model, other = make_model(), make_model(seed=3)
    tune(model, TuneConfig(train="none", insert="houlsby:4"), seed=1)
    save_adapters(tmp_path / "a.safetensors", model)
    with pytest.raises(EncoderError, match="same kind with other weights"):
        load_adapters(tmp_path / "a.safetensors", other)
    assert "tunings" not in other.__dict__ or not other.__dict__["tunings"].by_name
    assert load_adapters(tmp_path / "a.safetensors", other, any_base=True).name == "tuned"


def test_a_file_that_contradicts_its_own_setting_changes_nothing(make_model, batch, states_of, tmp_path):
    model, fresh = make_model(), make_model()
    plain = states_of(fresh, batch)
    tune(model, TuneConfig(train="none", insert="houlsby:4"), seed=1)
    path = tmp_path / "a.safetensors"
    save_adapters(path, model)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    tensors.pop("encoder.layer.2.output.dropout.adapters.up.bias")
    save_file(tensors, path, metadata)
    with pytest.raises(FolderError, match=r"1 weights do not fit its own setting, such as 'encoder\.layer\.2"):
        load_adapters(path, fresh)
    assert torch.equal(states_of(fresh, batch), plain)
    assert "tunings" not in fresh.__dict__


@pytest.mark.parametrize(("content", "told"), [(None, "missing or damaged"), (b"junk", "missing or damaged")])
def test_a_missing_or_damaged_file_is_refused(make_model, content, told, tmp_path):
    if content is not None:
        (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(FolderError, match=told):
        load_adapters(tmp_path / "a.safetensors", make_model())


def test_a_file_of_another_program_is_refused(make_model, tmp_path):
    save_file({"weight": torch.zeros(2)}, tmp_path / "a.safetensors")
    with pytest.raises(FolderError, match="not written by save_adapters"):
        load_adapters(tmp_path / "a.safetensors", make_model())
