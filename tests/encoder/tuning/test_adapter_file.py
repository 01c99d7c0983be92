import copy
import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from bertvision.encoder.tuning.adapter_file import load_adapters, save_adapters, save_plain
from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.tune import remove_tuning, tune, tuning_of
from bertvision.errors import EncoderError, FolderError, SettingsError

KEY = "bertvision_tuning"

SETTINGS = [
    {"train": "none", "insert": "houlsby:4"},
    {"train": "none", "insert": "pfeiffer:4", "train_norms": False},
    {"train": "top:2", "insert": "lora:2"},
    {"train": "none", "insert": "houlsby:4+lora-all:2"},
    {"train": "bitfit", "parasites": {"width": 4, "length": 9}},
    {"train": "all"},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_loaded_tuning_gives_the_same_states_exactly(make_model, settings, batch, shake, states_of, tmp_path):
    model, fresh = make_model(), make_model()
    tuned = tune(model, TuneConfig.model_validate(settings), seed=1)
    shake(model)
    save_adapters(str(tmp_path / "mine.safetensors"), model)
    loaded = load_adapters(tmp_path / "mine.safetensors", fresh)
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
    tune(model, TuneConfig(train="none", insert="houlsby:4"), seed=1)
    save_adapters(tmp_path / "a.safetensors", model)
    tensors = load_file(tmp_path / "a.safetensors")
    adapters, norms = 3 * 2 * (2 * 32 * 4 + 4 + 32), (1 + 3 * 2) * 2 * 32
    assert sum(tensor.numel() for tensor in tensors.values()) == adapters + norms
    assert "encoder.layer.2.output.dropout.adapters.up.bias" in tensors
    with safe_open(tmp_path / "a.safetensors", framework="pt") as file:
        about = json.loads(file.metadata()["bertvision_tuning"])
    assert (about["model_type"], about["hidden_size"], about["blocks"]) == ("bert", 32, 3)
    assert about["tune"]["insert"] == "houlsby:4"


def test_a_tuned_encoder_takes_no_second_file(make_model, batch, shake, states_of, tmp_path):
    model = make_model()
    tune(model, TuneConfig(train="none", insert="houlsby:4"), seed=1)
    save_adapters(tmp_path / "a.safetensors", model)
    shake(model)
    before = snapshot(model, batch, states_of)
    with pytest.raises(SettingsError, match="holds a tuning already"):
        load_adapters(tmp_path / "a.safetensors", model)
    assert snapshot(model, batch, states_of) == before


def test_another_kind_of_encoder_is_refused(make_model, tmp_path):
    model = make_model()
    tune(model, TuneConfig(train="none"), seed=1)
    save_adapters(tmp_path / "a.safetensors", model)
    with pytest.raises(EncoderError, match="model_type is bert, but this one's is roberta"):
        load_adapters(tmp_path / "a.safetensors", make_model("roberta"))


def snapshot(model, batch, states_of):
    """All that a failed load could have changed, as text and numbers that `==` compares."""
    states = states_of(model, batch).tolist()  # also lets transformers set its own hooks
    hooks = {path: (len(each._forward_hooks), len(each._forward_pre_hooks)) for path, each in model.named_modules()}
    learning = [name for name, param in model.named_parameters() if param.requires_grad]
    weights = {name: value.tolist() for name, value in model.state_dict().items()}
    return states, weights, learning, hooks, tuning_of(model) is None


def test_other_weights_are_refused_unless_asked_for(make_model, batch, states_of, tmp_path):
    model, other = make_model(), make_model(seed=3)
    before = snapshot(other, batch, states_of)
    tune(model, TuneConfig(train="none", insert="houlsby:4"), seed=1)
    save_adapters(tmp_path / "a.safetensors", model)
    with pytest.raises(EncoderError, match=r"same kind with other weights .* another checkpoint, .* any_base=True"):
        load_adapters(tmp_path / "a.safetensors", other)
    assert snapshot(other, batch, states_of) == before
    assert load_adapters(tmp_path / "a.safetensors", other, any_base=True).sizes_by_part.keys() == {"adapters", "norms"}


def metadata_of(path):
    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()[KEY])


def damage(path):
    """Leaves the last weight out of a file."""
    tensors = load_file(path)
    tensors.pop(max(tensors))
    save_file(tensors, path, {KEY: json.dumps(metadata_of(path))})


def test_a_file_that_contradicts_its_own_setting_changes_nothing(make_model, batch, states_of, tmp_path):
    model, fresh = make_model(), make_model()
    before = snapshot(fresh, batch, states_of)
    tune(model, TuneConfig(train="none", insert="houlsby:4"), seed=1)
    save_adapters(tmp_path / "a.safetensors", model)
    damage(tmp_path / "a.safetensors")
    told = (
        r"1 weights do not fit its own setting, such as 'encoder\.layer\.2.*up\.weight' \(none in .*, 32x4 expected\)"
    )
    with pytest.raises(FolderError, match=told):
        load_adapters(tmp_path / "a.safetensors", fresh)
    assert snapshot(fresh, batch, states_of) == before


@pytest.mark.parametrize("settings", SETTINGS)
def test_after_a_failed_load_what_learns_is_what_learnt_before(make_model, settings, batch, states_of, tmp_path):
    model, fresh, path = make_model(), make_model(), tmp_path / "a.safetensors"
    tune(model, TuneConfig.model_validate(settings), seed=1)
    save_adapters(path, model)
    damage(path)
    fresh.embeddings.requires_grad_(False)  # flags of the user's own
    before = snapshot(fresh, batch, states_of)
    with pytest.raises(FolderError, match="do not fit"):
        load_adapters(path, fresh)
    assert snapshot(fresh, batch, states_of) == before


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_saved_plain_encoder_is_the_one_before_tuning(make_model, settings, batch, shake, states_of, tmp_path):
    model = make_model()
    plain = states_of(model, batch)
    tune(model, TuneConfig.model_validate(settings), seed=1)
    shake(model)
    save_plain(tmp_path / "plain", model)
    again, info = AutoModel.from_pretrained(tmp_path / "plain", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert torch.equal(states_of(again.eval(), batch), plain)


def test_plain_encoders_of_every_kind_are_saved_beside_lora(make_model, kind, batch, shake, states_of, tmp_path):
    model = make_model(kind)
    plain = states_of(model, batch)
    tune(model, TuneConfig(train="none", insert="lora:2"), seed=1)
    shake(model)
    save_plain(tmp_path / "plain", model)
    assert (
        len({path.stat().st_mode for path in (tmp_path / "plain").iterdir()}) == 1
    )  # others may read them all, or none
    assert torch.equal(states_of(AutoModel.from_pretrained(tmp_path / "plain").eval(), batch), plain)


@pytest.fixture
def poolerless(make_model, tmp_path):
    """Gives a function that loads a RoBERTa whose checkpoint has no pooler: transformers makes a random one."""
    model = make_model("roberta")
    model.pooler = None
    model.save_pretrained(tmp_path / "roberta")
    return lambda **options: AutoModel.from_pretrained(tmp_path / "roberta", **options).eval()


@pytest.mark.parametrize("settings", [each for each in SETTINGS if each["train"] != "bitfit"])
def test_a_random_pooler_does_not_count(poolerless, settings, batch, shake, states_of, tmp_path):
    model, fresh = poolerless(), poolerless()
    assert not torch.equal(model.pooler.dense.weight, fresh.pooler.dense.weight)
    tune(model, TuneConfig.model_validate(settings), seed=1)
    shake(model)
    save_adapters(tmp_path / "a.safetensors", model)
    load_adapters(tmp_path / "a.safetensors", fresh)
    assert torch.equal(states_of(fresh, batch), states_of(model, batch))
    if settings["train"] == "all":  # then the pooler is in the file
        assert torch.equal(fresh(**batch).pooler_output, model(**batch).pooler_output)


def test_a_pooler_of_which_a_part_was_trained_counts(poolerless, tmp_path):
    model, fresh = poolerless(), poolerless()
    tune(model, TuneConfig(train="bitfit"), seed=1)
    save_adapters(tmp_path / "a.safetensors", model)
    with pytest.raises(EncoderError, match=r"another pooler, .* add_pooling_layer=False"):
        load_adapters(tmp_path / "a.safetensors", fresh)
    fresh.pooler.load_state_dict(model.pooler.state_dict())
    load_adapters(tmp_path / "a.safetensors", fresh)


def test_bitfit_without_a_pooler_fits_everywhere(poolerless, batch, shake, states_of, tmp_path):
    model, fresh = (poolerless(add_pooling_layer=False) for _ in range(2))
    tune(model, TuneConfig(train="bitfit"), seed=1)
    shake(model)
    save_adapters(tmp_path / "a.safetensors", model)
    load_adapters(tmp_path / "a.safetensors", fresh)
    assert torch.equal(states_of(fresh, batch), states_of(model, batch))


def with_odd_norms(model):
    """Norms start at 0 and 1, which every number format holds; these do not fit into bfloat16."""
    torch.manual_seed(0)
    for name, param in model.named_parameters():
        if "LayerNorm" in name:
            param.data += 0.1 * torch.randn_like(param)
    return model


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_tuning_saved_after_a_cast_fits_the_encoder_it_began_with(make_model, settings, shake, tmp_path):
    model, fresh = (with_odd_norms(make_model()) for _ in range(2))
    tune(model, TuneConfig.model_validate(settings), seed=1)
    shake(model)
    model = copy.deepcopy(model).bfloat16()
    save_adapters(tmp_path / "a.safetensors", model)
    load_adapters(tmp_path / "a.safetensors", fresh)
    cast, expected = fresh.bfloat16().state_dict(), model.state_dict()
    assert cast.keys() == expected.keys()
    assert all(value.equal(expected[name]) for name, value in cast.items())


def test_a_plain_encoder_saved_after_a_cast_is_cast_as_a_whole(make_model, tmp_path):
    model, plain = (with_odd_norms(make_model()) for _ in range(2))
    tune(model, TuneConfig(train="none", insert="lora:2"), seed=1)
    save_plain(tmp_path / "plain", model.bfloat16())
    saved, expected = load_file(tmp_path / "plain" / "model.safetensors"), plain.bfloat16().state_dict()
    assert saved.keys() == expected.keys()
    assert all(saved[name].dtype == torch.bfloat16 and saved[name].equal(expected[name]) for name in expected)


def test_an_encoder_changed_after_its_tuning_was_removed_is_another_one(make_model, tmp_path):
    model, config = make_model(), TuneConfig(train="none", insert="houlsby:4")
    tune(model, config, seed=1)
    save_adapters(tmp_path / "a.safetensors", model)
    remove_tuning(model)
    model.embeddings.word_embeddings.weight.data += 1
    tune(model, config, seed=1)
    with pytest.raises(EncoderError, match="same kind with other weights"):
        load_adapters(tmp_path / "a.safetensors", model)


def test_weights_that_come_after_the_tuning_count(make_model, tmp_path):
    plain, config = make_model(), TuneConfig(train="none", insert="houlsby:4", train_norms=False)
    with torch.device("meta"):
        model = make_model()
        tune(model, config, seed=1)
    with pytest.raises(EncoderError, match="no values yet"):
        save_adapters(tmp_path / "a.safetensors", model)
    model.to_empty(device="cpu").load_state_dict(plain.state_dict(), strict=False)
    save_adapters(tmp_path / "a.safetensors", model)
    assert load_adapters(tmp_path / "a.safetensors", plain).sizes_by_part.keys() == {"adapters"}


@pytest.mark.parametrize(("content", "told"), [(None, "cannot be read"), (b"junk", "damaged, or no safetensors file")])
def test_a_missing_or_damaged_file_is_refused(make_model, content, told, tmp_path):
    if content is not None:
        (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(FolderError, match=f"{told} .*; give ") as error:
        load_adapters(tmp_path / "a.safetensors", make_model())
    assert "\n" not in str(error.value)


def test_a_file_of_another_program_is_refused(make_model, tmp_path):
    save_file({"weight": torch.zeros(2)}, tmp_path / "a.safetensors")
    with pytest.raises(FolderError, match="no tuning's description; give a file that save_adapters wrote"):
        load_adapters(tmp_path / "a.safetensors", make_model())


@pytest.mark.parametrize("missing", ["model_type", "hidden_size", "blocks", "base", "tune", "format", None])
def test_an_incomplete_description_is_refused_in_one_line(make_model, missing, tmp_path):
    model, path = make_model(), tmp_path / "a.safetensors"
    tune(model, TuneConfig(train="none"), seed=1)
    save_adapters(path, model)
    about = json.dumps({key: value for key, value in metadata_of(path).items() if key != missing})
    save_file(load_file(path), path, {KEY: about if missing else about[:-9]})
    with pytest.raises(FolderError, match=f"`{missing}`: Field required" if missing else "not as .*char") as error:
        load_adapters(path, make_model())
    assert "\n" not in str(error.value)
    assert "save the tuning again" in str(error.value)
