"""The whole line with other weights tuned than all of the encoder's, and with other output layers."""

import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.encoder.load import load_encoder
from bertvision.encoder.tuning.adapter_file import load_adapters
from bertvision.errors import SettingsError
from bertvision.experiment import build_experiment
from bertvision.heads.build import count_head
from bertvision.heads.config import output_head
from bertvision.model_folder import load_model, read_model_config
from bertvision.records import read_records
from bertvision.serving.predict import predict_file
from bertvision.shapes import StackShape
from bertvision.stages.run import run, run_finetune
from bertvision.training.checkpoint import fingerprint
from bertvision.windows.batches import collate

pytestmark = pytest.mark.flow
OUTPUT = 32 * 2 + 2
NORMS = 5 * 2 * 32
BLOCK = 4 * (32 * 32 + 32) + 2 * 32 * 64 + 64 + 32 + 2 * 2 * 32  # its two norms included
BIASES = 2 * (4 * 32 + 64 + 32 + 2 * 32) + 32 + 32  # of blocks with their norms, the embeddings' norm, the pooler
TUNINGS = {
    "top": ({"train": "top:1"}, BLOCK + 3 * 2 * 32),
    "frozen": ({"train": "none", "train_norms": False}, 0),
    "norms": ({"train": "none"}, NORMS),
    "bitfit": ({"train": "bitfit", "train_norms": False}, BIASES),
    "houlsby": ({"train": "none", "insert": "houlsby:4"}, NORMS + 2 * 2 * (2 * 32 * 4 + 4 + 32)),
    "pfeiffer": ({"train": "top:1", "insert": "pfeiffer:4", "train_norms": False}, BLOCK + 2 * (2 * 32 * 4 + 4 + 32)),
    "lora": ({"train": "none", "insert": "lora:2", "train_norms": False}, 2 * 2 * 2 * 2 * 32),
    "parasites": (
        {"train": "none", "train_norms": False, "parasites": {"width": 3, "length": 24}},
        2 * (24 + 32 + 2 * 32 * 3 + 3 + 32),
    ),
}


@pytest.fixture
def settings(tiny):
    return {
        **tiny,
        "finetune": {"fractions": [1], "batch": {"windows": 2}, "lr": 1e-2},
        "heads": {"train": ["learned_pooling"], "batch": {"windows": 4}},
        "ensembles": [{"models": ["encoder", "learned_pooling"]}],
    }


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def last_states(encoder, windows):
    batch = collate(windows, np.arange(len(windows)), encoder.tokenizer.pad_token_id)
    with torch.no_grad():
        return encoder.model.eval()(input_ids=batch.ids, attention_mask=batch.mask.long()).last_hidden_state


@pytest.mark.parametrize("name", TUNINGS)
def test_every_tuning_goes_the_whole_line(name, settings, out, tmp_path):
    tune, trained = TUNINGS[name]
    encoder, head, both = run(build_experiment({**settings, "tune": tune}), out)
    assert encoder.parameters.trainable == trained + OUTPUT
    assert head.parameters.trainable == 3 + 1 + OUTPUT
    assert both.model == "encoder+learned_pooling"
    for row, model in (("encoder", out / "encoder" / "1"), (head.model, out / "heads" / "1" / head.model)):
        load_model(model)  # refuses an encoder of other weights
        predict_file(model, settings["data"]["dev"], tmp_path / row)
        folders = (tmp_path / row / "official", out / "predictions" / "1" / row)
        files = [place / "predictions.json" for place in folders]
        assert json.loads(files[0].read_text()) == json.loads(files[1].read_text())
    assert run(build_experiment({**settings, "tune": tune}), out) == [encoder, head, both]  # nothing is done again


@pytest.mark.parametrize("name", TUNINGS)
def test_every_tuning_combines_with_fractions_and_with_all_layer_heads_on_top(name, settings, out, tmp_path):
    tuned = {**settings, "tune": TUNINGS[name][0]}
    records = run(build_experiment(tuned, ["finetune.fractions=[0.5, 1]"]), out)
    rows = ["encoder", "learned_pooling", "encoder+learned_pooling"]
    assert [(record.fraction, record.model) for record in records] == [(each, row) for each in (0.5, 1) for row in rows]
    prints = [fingerprint(load_encoder(str(out / "encoder" / each)).model) for each in ("0.5", "1")]
    assert [record.encoder_fingerprint for record in records] == [each for each in prints for _ in rows]
    assert (prints[0] == prints[1]) == (name == "frozen")
    # The rate is constant, so the checkpoint at a half is the training that was stopped there.
    (half,) = run_finetune(build_experiment(tuned, ["finetune.fractions=[0.5]"]), tmp_path / "half")
    assert fingerprint(load_encoder(str(half)).model) == prints[0]
    heads = [load_file(out / "heads" / each / "learned_pooling" / "head.safetensors") for each in ("0.5", "1")]
    assert any(not torch.equal(value, heads[1][key]) for key, value in heads[0].items()) == (name != "frozen")


def test_tunings_have_different_fingerprints(settings, tmp_path):
    prints = []
    for name, (tune, _) in TUNINGS.items():
        (place,) = run_finetune(build_experiment({**settings, "tune": tune}), tmp_path / name)
        prints.append(fingerprint(load_encoder(str(place)).model))
        assert read_model_config(place).encoder_fingerprint == prints[-1]
    assert len(set(prints)) == len(TUNINGS)
    assert prints.index(fingerprint(load_encoder(settings["encoder"]).model)) == list(TUNINGS).index("frozen")


def test_what_is_frozen_stays_as_it_was(settings, out):
    (place,) = run_finetune(build_experiment({**settings, "tune": {"train": "top:1", "train_norms": False}}), out)
    before, after = load_encoder(settings["encoder"]).model.state_dict(), load_encoder(str(place)).model.state_dict()
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert changed
    assert all(name.startswith("encoder.layer.1.") for name in changed)


def test_single_weights_that_are_frozen_stay_as_they_were_and_are_not_counted(settings, out):
    tuned = {**settings, "tune": {"train": "top:1", "train_norms": False, "frozen_fraction": 0.8}}
    records = run(build_experiment(tuned, ["finetune.fractions=[1, 3]", "heads.train=[]", "ensembles=[]"]), out)
    before = load_encoder(settings["encoder"]).model.state_dict()
    moved = [
        {
            name: load_encoder(str(out / "encoder" / each)).model.state_dict()[name] != value
            for name, value in before.items()
        }
        for each in ("1", "3")
    ]
    counts = [sum(changed.sum().item() for changed in each.values()) for each in moved]
    # Few numbers come back to where they began, but the biases of keys have no gradient: 32, a fifth of them trained.
    trained = records[0].parameters.trainable - OUTPUT
    assert trained - 32 < counts[0] <= counts[1] + 3 <= trained + 3
    assert abs(trained / BLOCK - 0.2) < 4 * (0.2 * 0.8 / BLOCK) ** 0.5
    assert [each.parameters.trainable for each in records] == [trained + OUTPUT] * 2
    assert all(name.startswith("encoder.layer.1.") for name, changed in moved[1].items() if changed.any())


def test_parasites_can_learn_at_a_rate_of_their_own(settings, out):
    tune = {"train": "top:1", "train_norms": False, "parasites": {"width": 3, "length": 24, "lr": 1e-3}}
    overrides = ["finetune.fractions=[0, 0.1]", "finetune.optim.weight_decay=0"]  # the latter after one step
    places = run_finetune(build_experiment({**settings, "tune": tune}, overrides), out)
    before, after = (load_file(place / "adapters.safetensors") for place in places)
    changes = {name: (after[name] - value).abs().max().item() for name, value in before.items()}
    # The first step of Adam is as long as the rate where a gradient is not tiny.
    assert changes["parasites.1.up.weight"] == pytest.approx(1e-3, rel=1e-2)
    assert changes["encoder.layer.1.output.dense.weight"] == pytest.approx(1e-2, rel=1e-2)


def test_adapters_stand_beside_the_plain_encoder(settings, out):
    (place,) = run_finetune(build_experiment({**settings, "tune": TUNINGS["houlsby"][0]}), out)
    plain, beside = load_encoder(settings["encoder"]).model, load_file(place / "model.safetensors")
    assert all(torch.equal(value, beside[name]) for name, value in plain.state_dict().items())
    assert beside.keys() == plain.state_dict().keys()


def test_lora_is_merged_into_the_encoder_and_kept_beside_it(settings, out, make_task):
    (place,) = run_finetune(build_experiment({**settings, "tune": TUNINGS["lora"][0]}), out)
    plain, windows = load_encoder(settings["encoder"]), make_task("span")[0]
    assert load_file(place / "model.safetensors").keys() == plain.model.state_dict().keys()
    before, merged = last_states(plain, windows), last_states(load_encoder(str(place)), windows)
    load_adapters(place / "lora.safetensors", plain.model)
    torch.testing.assert_close(merged, last_states(plain, windows), rtol=1e-4, atol=1e-4)
    assert (merged - before).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["houlsby", "lora", "top", "half"])
def test_a_fine_tuning_that_was_stopped_goes_on_to_the_same_weights(name, settings, out, tmp_path, monkeypatch):
    tune = {"frozen_fraction": 0.5} if name == "half" else TUNINGS[name][0]
    experiment = build_experiment({**settings, "tune": tune}, ["finetune.save_every=1e-9"])
    (whole,) = run_finetune(experiment, tmp_path / "whole")
    monkeypatch.setattr("bertvision.stages.finetune._save", stop)  # after the last step but before the result is there
    with pytest.raises(KeyboardInterrupt):
        run_finetune(experiment, out)
    monkeypatch.undo()
    assert (out / "unfinished" / "finetune" / "progress" / "position.json").exists()
    (resumed,) = run_finetune(experiment, out)
    prints = [fingerprint(load_encoder(str(place)).model) for place in (whole, resumed)]
    assert prints[0] == prints[1]
    assert (whole / "head.safetensors").read_bytes() == (resumed / "head.safetensors").read_bytes()


def stop(*_):
    raise KeyboardInterrupt


def test_a_tuned_encoder_goes_on_with_the_same_tuning_and_refuses_another(settings, out, tmp_path):
    first, more = {**settings, "tune": TUNINGS["houlsby"][0]}, tmp_path / "more"
    (place,) = run_finetune(build_experiment(first), out)
    (again,) = run_finetune(build_experiment(first, [f"encoder={place}"]), more)
    assert load_file(again / "model.safetensors").keys() == load_file(place / "model.safetensors").keys()
    assert not torch.equal(*(next(iter(load_file(each / "adapters.safetensors").values())) for each in (place, again)))
    with pytest.raises(
        SettingsError, match=r"holds a tuning already \(train: none, insert: houlsby:4, train_norms: True\)"
    ):
        run_finetune(build_experiment(settings, [f"encoder={place}"]), tmp_path / "other")


def test_another_tuning_in_the_same_folder_is_refused(settings, out):
    run_finetune(build_experiment(settings), out)
    assert json.loads((out / "encoder" / "1" / "settings_fingerprint.json").read_text())["tune"] is None
    run_finetune(build_experiment(settings, ["tune.train=all"]), out)  # the default, spelled out
    with pytest.raises(Exception, match=r"made by other settings \(tune was null"):
        run_finetune(build_experiment(settings, ["tune.train=top:1"]), out)


@pytest.mark.parametrize(
    "head", ["cacnn_simple", "learned_pooling", {"pooler": {"kind": "cacnn_context", "filters": 8}}, "last_adapter"]
)
def test_a_head_of_the_catalog_can_be_the_output_layer(head, settings, out, tmp_path):
    records = run(build_experiment({**settings, "finetune": {**settings["finetune"], "head": head}}), out)
    model = load_model(out / "encoder" / "1")
    size = count_head(output_head(head), StackShape(3, 32)).trainable
    assert records[0].parameters.trainable == load_encoder(settings["encoder"]).num_parameters + size
    assert sum(weight.numel() for weight in model.head.parameters()) == size
    predict_file(out / "encoder" / "1", settings["data"]["dev"], tmp_path / "again")
    folders = (tmp_path / "again" / "official", out / "predictions" / "1" / "encoder")
    files = [place / "predictions.json" for place in folders]
    assert json.loads(files[0].read_text()) == json.loads(files[1].read_text())


def test_an_output_head_reads_the_layers_that_heads_read_and_goes_on_with_them(settings, out, tmp_path):
    overrides = ["finetune.head=learned_pooling", "states.layers=[0, 2]"]
    (record, *_) = run(build_experiment(settings, overrides), out)
    assert len(record.layer_weights) == 2
    place = out / "encoder" / "1"
    (again,) = run_finetune(build_experiment(settings, [f"encoder={place}"]), tmp_path / "more")
    assert read_model_config(again).head == read_model_config(place).head
    assert read_model_config(again).state_layers == (0, 2)
    assert (
        load_model(again).head.pooler.layer_weights().tolist() != load_model(place).head.pooler.layer_weights().tolist()
    )


def test_a_missing_package_is_named_before_any_variant_is_trained(settings, out, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    path = tmp_path / "several.yaml"
    variants = {"full": {}, "lora": {"tune": {"train": "none", "insert": "lora:2"}}}
    path.write_text(json.dumps({**settings, "name": "several", "variants": variants}))
    found = CliRunner().invoke(app, ["run", str(path), "--out", str(out)])
    assert found.exit_code == 2
    assert "bertvision[peft]" in found.output
    assert not out.exists()


def test_all_variants_of_a_file_are_run_side_by_side_and_reported_together(settings, out, tmp_path):
    path = tmp_path / "several.yaml"
    variants = {
        "full": {"finetune": {"lr": [1e-3, 3e-3]}},
        "houlsby": {"tune": {"train": "none", "insert": "houlsby:4"}},
        "heads": {"heads": {"train": ["learned_pooling"]}},
    }
    plain = {**settings, "name": "several", "heads": {"train": []}, "ensembles": [], "measure": {"inference": True}}
    path.write_text(json.dumps({**plain, "variants": variants}))
    data = ["--set", f"data.train={settings['data']['train']}", "--quiet", "--out", str(out)]
    one = CliRunner().invoke(app, ["run", str(path), *data, "--set", "variant=houlsby"])
    assert one.exit_code == 0, one.output
    written = (out / "houlsby" / "encoder" / "1" / "adapters.safetensors").stat().st_mtime_ns
    every = CliRunner().invoke(app, ["run", str(path), *data])
    assert every.exit_code == 0, every.output
    assert (out / "houlsby" / "encoder" / "1" / "adapters.safetensors").stat().st_mtime_ns == written
    assert {place.name for place in out.iterdir() if place.is_dir()} >= {
        "full-lr0.001",
        "full-lr0.003",
        "houlsby",
        "heads",
    }
    text = (out / "report.md").read_text()
    assert "heads:learned" in text
    records = [each for each in read_records(out) if each.model == "encoder"]
    assert {each.experiment for each in records} == {"several"}
    assert {(each.variant, each.method, each.encoder_lr) for each in records} >= {
        ("full-lr0.001", "full", 1e-3),
        ("full-lr0.003", "full", 3e-3),
    }
    assert {each.method for each in records} == {"full", "houlsby", "heads"}


def test_a_record_says_what_its_row_costs(settings, out):
    adapters = 2 * 2 * (2 * 32 * 4 + 4 + 32) + NORMS
    experiment = build_experiment({**settings, "tune": TUNINGS["houlsby"][0]}, ["measure.inference=true"])
    encoder, head, both = (record.efficiency for record in run(experiment, out))
    assert encoder.ship_bytes == 4 * (adapters + OUTPUT)
    assert head.ship_bytes == 4 * (adapters + 3 + 1 + OUTPUT)
    assert both.ship_bytes == 4 * (adapters + 2 * OUTPUT + 3 + 1)
    assert encoder.encoder_seconds > encoder.data_seconds > 0
    assert (encoder.heads_seconds, encoder.joules, encoder.peak_device_bytes) == (0, None, None)
    assert encoder.peak_process_bytes > 10_000_000
    assert head.heads_seconds > 0
    assert head.inference.operations > encoder.inference.operations > 0
    assert both.inference is None


def test_without_a_word_on_measuring_nothing_is_measured_alone(settings, out):
    records = run(build_experiment(settings), out)
    assert all(record.efficiency.inference is None for record in records)
