import json
import shutil

import pytest
import torch
from transformers import AutoModel, MPNetConfig, MPNetModel, RobertaConfig, RobertaModel

from bertvision.encoder.encode import encode
from bertvision.encoder.load import Encoder, load_encoder, load_tokenizer
from bertvision.errors import EncoderError, reason_of
from bertvision.windows.batches import collate
from bertvision.windows.window import WindowConfig, cut_windows


def test_an_encoder_comes_back_from_its_folder(encoder, encoder_folder):
    loaded = load_encoder(str(encoder_folder))
    assert all(
        torch.equal(weight, loaded.model.state_dict()[name]) for name, weight in encoder.model.state_dict().items()
    )


def test_a_checkpoint_without_pooler_gets_none_rather_than_random_weights(encoder, tmp_path):
    encoder.model.pooler = None
    encoder.model.save_pretrained(tmp_path)
    encoder.tokenizer.save_pretrained(tmp_path)
    assert load_encoder(str(tmp_path)).model.pooler is None


def test_a_checkpoint_that_lacks_weights_is_refused(encoder, encoder_folder):
    state = {name: weight for name, weight in encoder.model.state_dict().items() if "layer.1.attention" not in name}
    encoder.model.save_pretrained(encoder_folder, state_dict=state)
    with pytest.raises(EncoderError, match=r"lacks \d+ weights"):
        load_encoder(str(encoder_folder))


@pytest.mark.parametrize("name", ["no/such-encoder", "nowhere"])
def test_an_encoder_that_cannot_be_had_is_a_one_line_error(name):
    with pytest.raises(EncoderError) as caught:
        load_encoder(name)
    assert "\n" not in str(caught.value)
    with pytest.raises(EncoderError):
        load_tokenizer(name)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("load", [load_encoder, load_tokenizer])
def test_a_hub_id_without_a_network_is_refused_at_once_with_what_to_do(load, caplog, capfd):
    with pytest.raises(EncoderError) as caught:
        load("no/such-encoder")
    for part in ("no/such-encoder", "cannot be reached", "`default` or the folder of an encoder", "HF_HUB_OFFLINE"):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (caplog.text, capfd.readouterr().err) == ("", "")


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("load", [load_encoder, load_tokenizer])
def test_an_encoder_that_was_downloaded_needs_no_network(load, saved_encoder, tmp_path, monkeypatch):
    place = tmp_path / "models--hannah--weir"
    shutil.copytree(saved_encoder, place / "snapshots" / "c0ffee")
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("c0ffee")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert load("hannah/weir") is not None


def test_a_long_reason_is_cut_between_words():
    address = "https://huggingface.co/hannah/weir/resolve/main/config.json"
    told = reason_of(OSError(f"We could not\nconnect to {address}, " + "and said so at length, " * 6 + address))
    assert told.startswith(f"We could not connect to {address}, and said")
    assert told.endswith("at length, ...")


def test_code_of_an_encoders_own_is_neither_run_nor_asked_about(encoder_folder, monkeypatch):
    (encoder_folder / "own.py").write_text("raise SystemExit('this was run')")
    own = {"model_type": "weir", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}
    (encoder_folder / "config.json").write_text(json.dumps(own))
    monkeypatch.setattr("builtins.input", lambda prompt: pytest.fail("asked on the terminal"))
    load_tokenizer(str(encoder_folder))
    with pytest.raises(EncoderError, match=r"code of its own \(`auto_map`\), which is never run"):
        load_encoder(str(encoder_folder))


def test_pickled_weights_are_refused_with_the_way_to_convert_them(encoder, encoder_folder, tmp_path):
    (encoder_folder / "model.safetensors").unlink()
    torch.save(encoder.model.state_dict(), encoder_folder / "pytorch_model.bin")
    with pytest.raises(EncoderError, match="no weights as safetensors") as caught:
        load_encoder(str(encoder_folder))
    assert "\n" not in str(caught.value)
    assert f"AutoModel.from_pretrained({str(encoder_folder)!r}, use_safetensors=False)" in str(caught.value)
    AutoModel.from_pretrained(encoder_folder, use_safetensors=False).save_pretrained(tmp_path / "new")
    encoder.tokenizer.save_pretrained(tmp_path / "new")
    assert load_encoder(str(tmp_path / "new")).shape == encoder.shape


def test_a_folder_without_an_encoder_is_refused(tmp_path):
    with pytest.raises(EncoderError, match=r"no config\.json"):
        load_encoder(str(tmp_path))


def test_half_precision_weights_are_loaded_as_float32(encoder, tmp_path):
    encoder.model.half().save_pretrained(tmp_path)
    encoder.tokenizer.save_pretrained(tmp_path)
    assert {weight.dtype for weight in load_encoder(str(tmp_path)).model.parameters()} == {torch.float32}


def test_the_states_are_the_embedding_output_and_every_layer(encoder, questions):
    batch = collate(cut_windows(questions, encoder.tokenizer, WindowConfig()), torch.arange(8).numpy(), 0)
    states = encode(encoder, batch)
    output = encoder.model(batch.ids, batch.mask.long(), batch.segments, output_hidden_states=True)
    assert states.shape == (8, 3, batch.ids.shape[1], 32)
    torch.testing.assert_close(states, torch.stack(output.hidden_states, dim=1))
    torch.testing.assert_close(encode(encoder, batch, last_only=True)[:, 0], states[:, -1])


def test_padding_changes_no_state_of_a_real_token(encoder, questions):
    windows = cut_windows(questions, encoder.tokenizer, WindowConfig())
    together = encode(encoder, collate(windows, torch.arange(8).numpy(), 0))
    for row, window in enumerate(windows):
        alone = encode(encoder, collate(windows, torch.tensor([row]).numpy(), 0))
        torch.testing.assert_close(together[row, :, : len(window)], alone[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "model", "more"),
    [(RobertaConfig, RobertaModel, {"type_vocab_size": 1}), (MPNetConfig, MPNetModel, {})],  # as published
)
def test_encoders_without_token_types_are_not_given_any(config, model, more, encoder, questions):
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    other = model(config(vocab_size=len(encoder.tokenizer), max_position_embeddings=514, **shape, **more)).eval()
    roberta = Encoder("other", other, encoder.tokenizer)
    assert not roberta.takes_segments
    batch = collate(cut_windows(questions, encoder.tokenizer, WindowConfig()), torch.arange(8).numpy(), 0)
    assert encode(roberta, batch).shape == (8, 3, batch.ids.shape[1], 32)


def test_positions_that_stand_behind_the_paddings_leave_fewer_tokens(encoder):
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    config = RobertaConfig(vocab_size=len(encoder.tokenizer), max_position_embeddings=130, **shape)
    roberta = Encoder("other", RobertaModel(config).eval(), encoder.tokenizer)
    assert roberta.max_length == 128
    roberta.model(torch.full((1, roberta.max_length), 5))  # one more has no position
