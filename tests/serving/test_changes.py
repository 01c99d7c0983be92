"""Models that are saved as what differs from the encoder that they were tuned from."""

import json
import sys
from pathlib import Path

import pytest
import torch
from changes import save_as_changes
from safetensors.torch import load_file

import bertvision
from bertvision.encoder import load
from bertvision.encoder.load import load_encoder
from bertvision.encoder.tuning.adapter_file import save_adapters
from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.tune import merge_tuning, tune
from bertvision.errors import EncoderError, FolderError
from bertvision.model_config import SHIPPED
from bertvision.model_folder import load_model
from bertvision.records import write_record
from bertvision.serving.predict import predict_file

QUESTION, CONTEXT = "who built the weir?", "the weir was built in 1887 by hannah coyle. the river was by the stone"


@pytest.fixture
def reader(encoder, encoder_folder, make_folder, monkeypatch):
    """A reader whose encoder was tuned from the tiny one, which goes for the default one here."""
    monkeypatch.setattr(load, "pypi_encoder", lambda name: str(encoder_folder))
    with torch.no_grad():
        for name, weight in encoder.model.named_parameters():
            if name.startswith("encoder.layer.1."):
                weight.mul_(1.01)
    return bertvision.load(make_folder(), device="cpu")


@pytest.fixture
def saved(reader, tmp_path):
    return save_as_changes(reader, tmp_path / "saved", "default")


def test_a_model_saved_as_changes_answers_as_the_rounded_one(reader, saved):
    expected, found = (
        reader(QUESTION, CONTEXT, top_k=5),
        bertvision.load(saved, device="cpu")(QUESTION, CONTEXT, top_k=5),
    )
    assert [each.text for each in found] == [each.text for each in expected]
    assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=0.05)


def test_the_folder_holds_the_tuned_layer_alone(encoder, saved):
    tuned = {name for name in encoder.model.state_dict() if name.startswith("encoder.layer.1.")}
    assert set(load_file(saved / "changes.safetensors")) <= tuned  # biases of zero stay zero
    assert {path.name for path in saved.iterdir()} == {
        *("changes.safetensors", "changes.json", "head.safetensors", "model.json", "calibration.json", "README.md"),
        "sha256.json",
    }


def test_a_damaged_head_is_a_one_line_error(saved):
    (saved / "head.safetensors").write_bytes(b"something else")
    with pytest.raises(FolderError, match=r"head\.safetensors: damaged") as caught:
        bertvision.load(saved, device="cpu")
    assert "\n" not in str(caught.value)


def test_a_folder_of_changes_can_be_saved_whole(saved, tmp_path):
    reader = bertvision.load(saved, device="cpu")
    reader.save_pretrained(tmp_path / "whole")
    whole = bertvision.load(tmp_path / "whole", device="cpu")
    assert whole(QUESTION, CONTEXT, top_k=5) == reader(QUESTION, CONTEXT, top_k=5)


def test_the_default_model_is_found_by_every_way_in(saved, monkeypatch):
    monkeypatch.setitem(SHIPPED, "default", saved)
    assert bertvision.load("default", device="cpu").served.folder == saved
    weights = load_model(saved).encoder.model.state_dict()
    for model in (load_model(Path("default")), load_encoder("default-model")):
        found = getattr(model, "encoder", model).model.state_dict()
        assert all(torch.equal(found[name], weights[name]) for name in weights)


def test_predict_declines_where_the_saved_model_does(make_folder, make_record, squad_file, tmp_path):
    folder = make_folder(place="out/heads/1/learned_pooling")
    write_record(tmp_path / "out" / "records", make_record(scores={"tuned_threshold": -1e6, "temperature": 1.0}))
    bertvision.load(folder, device="cpu").save_pretrained(tmp_path / "saved")
    for model, out in ((folder, "before"), (tmp_path / "saved", "after")):
        assert not any(each.text for each in predict_file(model, str(squad_file()), tmp_path / out).predictions)


def test_only_an_encoder_that_others_have_can_be_named(reader, encoder_folder, tmp_path):
    with pytest.raises(EncoderError, match="is a folder of this machine"):
        save_as_changes(reader, tmp_path / "saved", str(encoder_folder))
    assert not (tmp_path / "saved").exists()


def test_an_encoder_with_other_word_pieces_is_refused(reader, spelling_encoder, encoder_folder, tmp_path):
    spelling_encoder.model.save_pretrained(encoder_folder)
    spelling_encoder.tokenizer.save_pretrained(encoder_folder)
    with pytest.raises(EncoderError, match="other word pieces"):
        save_as_changes(reader, tmp_path / "saved", "default")


def shake(model, tuned):
    """Let what a tuning trains be anything."""
    shift = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name in tuned.sizes:
            weight = model.get_parameter(name)
            weight.add_(torch.randn(weight.shape, generator=shift) / 8)


def test_adapters_come_back_from_a_file_of_their_own(encoder, make_folder, encoder_folder, monkeypatch, tmp_path):
    monkeypatch.setattr(load, "pypi_encoder", lambda name: str(encoder_folder))
    tuned = tune(encoder.model, TuneConfig(train="none", insert="houlsby:4"), seed=0)
    shake(encoder.model, tuned)
    reader = bertvision.load(make_folder(), device="cpu")
    saved = save_as_changes(reader, tmp_path / "saved", "default")
    before, after = (load_model(place, allow_outside=True).encoder.model for place in (reader.served.folder, saved))
    plain = load_encoder("default").model
    ids = torch.tensor([[2, 10, 20, 30, 3]])
    with torch.no_grad():
        wanted, found, without = (model(ids).last_hidden_state for model in (before, after, plain))
    assert (wanted - without).abs().max() > 0.1  # the adapters do something
    assert (wanted - found).abs().max() < 0.01  # of which float16 keeps three digits
    assert not load_file(saved / "changes.safetensors")


@pytest.fixture
def lora_folder(encoder, make_folder, encoder_folder, monkeypatch):
    """A MODEL_DIR as a run leaves it: LoRA and norms that learned, merged into the encoder and kept beside it."""
    monkeypatch.setattr(load, "pypi_encoder", lambda name: str(encoder_folder))
    tuned = tune(encoder.model, TuneConfig(train="none", insert="lora-all:3"), seed=0)
    shake(encoder.model, tuned)
    save_adapters(encoder_folder.parent / "lora.safetensors", encoder.model)
    merge_tuning(encoder.model)
    folder = make_folder()
    (encoder_folder.parent / "lora.safetensors").rename(folder / "lora.safetensors")
    return folder


def test_lora_comes_back_as_a_part_of_the_weights_and_without_peft(lora_folder, tmp_path, monkeypatch):
    saved = save_as_changes(bertvision.load(lora_folder, device="cpu"), tmp_path / "saved", "default")
    assert not load_file(saved / "changes.safetensors")
    monkeypatch.setitem(sys.modules, "peft", None)
    before, after, plain = (load_model(lora_folder), load_model(saved), load_encoder("default"))
    assert after.encoder.model.state_dict().keys() == plain.model.state_dict().keys()
    for name, weight in before.encoder.model.state_dict().items():
        moved = (weight - plain.model.state_dict()[name]).abs().max()
        # Factors and norms in float16 have three digits.
        assert (after.encoder.model.state_dict()[name] - weight).abs().max() <= 0.002 * moved + 1e-3, name
    own = {name for name, weight in before.encoder.model.state_dict().items() if name.endswith("dense.weight")}
    assert any((before.encoder.model.state_dict()[name] != plain.model.state_dict()[name]).any() for name in own)


def test_merged_weights_have_the_same_bits_in_whichever_order_a_machine_adds_up(lora_folder, tmp_path):
    saved = save_as_changes(bertvision.load(lora_folder, device="cpu"), tmp_path / "saved", "default")
    expected = load_encoder("default").model.state_dict()
    tensors = load_file(saved / "adapters.safetensors")
    found = load_model(saved).encoder.model.state_dict()
    for layer in {name.partition(".lora_A.")[0] for name in tensors if ".lora_A." in name}:
        low, high = (tensors[f"{layer}.lora_{each}.weight"] for each in "AB")
        assert low.dtype == high.dtype == torch.float16
        for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
            summed = sum(torch.outer(high[:, place].double(), low[place].double()) for place in order)
            assert torch.equal(found[f"{layer}.weight"], (expected[f"{layer}.weight"].double() + summed).float())


def test_the_manifest_names_the_encoder(saved):
    manifest = json.loads((saved / "changes.json").read_text())
    assert (manifest["format"], manifest["base"]) == (1, "default")
    hashes = json.loads((saved / "sha256.json").read_text())["sha256"]
    assert set(hashes) == {"calibration.json", "changes.json", "changes.safetensors", "head.safetensors"}
