"""Texts to a folder of states, which any program reads and heads train from."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer
from typer.testing import CliRunner

import bertvision
from bertvision.cli import app
from bertvision.errors import DataError, FolderError, SettingsError
from bertvision.states import folder as states_folder

PAGE = (Path(__file__).parent.parent.parent / "docs" / "howto" / "states.md").read_text(encoding="utf-8")
SHORT = ["the weir was built in 1887", "hannah coyle", "who built the stone weir in the river", "the river, the stone"]
LONG = " ".join(f"the river number {number} was by the weir of stone." for number in range(3400))  # 150 kB


def call(*command):
    return CliRunner().invoke(app, [*map(str, command)])


@pytest.fixture
def small_shards(monkeypatch):
    """Let a few windows fill several shards."""
    monkeypatch.setattr(states_folder, "SHARD_BYTES", 1)
    monkeypatch.setattr(states_folder, "CPU_TOKENS", 12)


@pytest.fixture
def read_text():
    """The lines of the page that read a folder without this package."""
    (lines,) = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    names = {}
    exec(lines, names)
    assert "bertvision" not in lines
    return names["read_text"]


def reference(folder, text):
    """All layers' states of one text as transformers computes them, without the special tokens at its ends."""
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        states = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
    return torch.stack(states, dim=2)[0, 1:-1]


def content_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_lines_of_the_page_read_the_states_that_transformers_computes(
    saved_encoder, read_text, small_shards, tmp_path
):
    found = bertvision.encode(SHORT, tmp_path / "states", encoder=str(saved_encoder))
    assert (found.examples, found.windows) == (4, 4)
    assert len(list((tmp_path / "states").glob("*.safetensors"))) > 1
    for number, text in enumerate(SHORT):
        states = torch.stack(read_text(tmp_path / "states", number))
        torch.testing.assert_close(states.float(), reference(saved_encoder, text), rtol=2**-7, atol=1e-3)


def test_a_long_text_goes_in_windows_whose_positions_say_which_tokens_overlap(saved_encoder, read_text, tmp_path):
    (tmp_path / "long.txt").write_text(LONG)
    assert len(LONG) > 150_000
    shown = call("encode", tmp_path / "long.txt", "--out", tmp_path / "states", "--encoder", saved_encoder, "--json")
    found = json.loads(shown.stdout)
    (path,) = (tmp_path / "states").glob("*.safetensors")
    tensors = load_file(path)
    ids = AutoTokenizer.from_pretrained(saved_encoder)(LONG, add_special_tokens=False)["input_ids"]
    assert (
        found["windows"] == len(tensors["start"]) == -(-(len(ids) - 382) // 254) + 1
    )  # 382 tokens, of which 128 again
    told = tensors["position"] >= 0
    assert torch.equal(tensors["id"][told], torch.tensor(ids, dtype=torch.int32)[tensors["position"][told]])
    assert tensors["position"][told].unique().tolist() == list(range(len(ids)))
    twice = tensors["position"][told].unique(return_counts=True)[1].eq(2).sum()
    assert twice == int(told.sum()) - len(ids)
    assert len(read_text(tmp_path / "states", 0)) == len(ids)


def test_the_size_is_said_first_and_is_that_of_the_files(saved_encoder, small_shards, tmp_path):
    (tmp_path / "texts.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in SHORT))
    shown = call("encode", tmp_path / "texts.jsonl", "--out", tmp_path / "states", "--encoder", saved_encoder)
    assert shown.exit_code == 0, shown.output
    states = [load_file(path)["states"] for path in (tmp_path / "states").glob("*.safetensors")]
    size = sum(each.nbytes for each in states)
    assert f"4 examples, 4 windows, {size // 192} tokens, {size / 1000:.1f} kB" in shown.stderr.splitlines()[0]
    assert {each.dtype for each in states} == {torch.bfloat16}


def test_pooled_states_of_some_layers_are_one_row_a_window(saved_encoder, tmp_path):
    bertvision.encode(SHORT, tmp_path / "states", encoder=str(saved_encoder), layers=[0, 2], pooling="mean")
    tensors = load_file(tmp_path / "states" / "states-00000.safetensors")
    assert tensors["states"].shape == (4, 2, 32)
    assert "position" not in tensors
    row = int((tensors["example"] == 1).nonzero())
    model, tokenizer = AutoModel.from_pretrained(saved_encoder), AutoTokenizer.from_pretrained(saved_encoder)
    with torch.no_grad():
        states = model(**tokenizer(SHORT[1], return_tensors="pt"), output_hidden_states=True).hidden_states
    expected = torch.stack([states[0].mean(dim=1), states[2].mean(dim=1)], dim=1)[0]
    torch.testing.assert_close(tensors["states"][row].float(), expected, rtol=2**-7, atol=1e-3)


KILLED = """
import os, signal, sys
import bertvision
from bertvision.states import folder

folder.SHARD_BYTES, folder.CPU_TOKENS = 1, 12
real, calls = getattr(os, sys.argv[3]), []

def count(*given, **more):
    calls.append(1)
    if len(calls) == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*given, **more)

setattr(os, sys.argv[3], count)
bertvision.encode(TEXTS, sys.argv[2], encoder=sys.argv[1])
"""


@pytest.mark.parametrize(("call_of", "number"), [("replace", 2), ("replace", 3), ("fsync", 5)])
def test_what_was_killed_goes_on_after_the_last_listed_shard(
    call_of, number, saved_encoder, small_shards, tmp_path, monkeypatch
):
    texts = SHORT * 3
    bertvision.encode(texts, tmp_path / "whole", encoder=str(saved_encoder))
    script = KILLED.replace("TEXTS", repr(texts))
    given = [sys.executable, "-c", script, saved_encoder, tmp_path / "states", call_of, number]
    killed = subprocess.run([*map(str, given)], check=False, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "states" / "states.json").exists()
    bertvision.encode(texts, tmp_path / "states", encoder=str(saved_encoder))
    assert content_of(tmp_path / "states") == content_of(tmp_path / "whole")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"layers": [0]}, r'layers was "all" and is now \[0\]'),
        ({"pooling": "mean"}, 'pooling was null and is now "mean"'),
        ({"settings": {"windows": {"max_length": 20}}}, "windows.max_length was 384 and is now 20"),
        ({"texts": [*SHORT, "more"]}, 'data was "[0-9a-f]{64}" and is now "[0-9a-f]{64}"'),
        ({"encoder": "other"}, 'encoder was "[0-9a-f]{64}" and is now "[0-9a-f]{64}"'),
    ],
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_folder_of_other_states_is_refused_with_both_values(changes, told, is_whole, saved_encoder, tmp_path):
    given = {"texts": SHORT, "encoder": str(saved_encoder)}
    bertvision.encode(**given, out=tmp_path / "states")
    if not is_whole:
        (tmp_path / "states" / "states.json").rename(tmp_path / "states" / "unfinished.json")
    if changes == {"encoder": "other"}:
        changes = {"encoder": str(retrained(saved_encoder, tmp_path / "other"))}
    with pytest.raises(FolderError, match=f"holds other states .{told}"):
        bertvision.encode(**{**given, **changes}, out=tmp_path / "states")


def retrained(encoder, folder):
    """Save an encoder with a weight that differs."""
    model = AutoModel.from_pretrained(encoder)
    with torch.no_grad():
        model.embeddings.LayerNorm.bias[0] += 1
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(encoder).save_pretrained(folder)
    return folder


def test_what_cannot_be_encoded_is_refused(saved_encoder, tmp_path):
    out = tmp_path / "states"
    for texts, told in (([], "there is no text to encode"), (["\u0007"], "text 0 .* holds no token")):
        with pytest.raises(DataError, match=told):
            bertvision.encode(texts, out, encoder=str(saved_encoder))
    with pytest.raises(SettingsError, match="no task 'poetry'"):
        bertvision.encode("a.csv", out, encoder=str(saved_encoder), task="poetry")
    shown = call("encode", "a.txt", "--out", out, "--layers", "one")
    assert "--layers: expected numbers with commas between, such as 0,6,12, got 'one'" in shown.stderr
    assert not out.exists()


@pytest.fixture
def settings(tiny):
    """Two epochs of two heads on an encoder as given."""
    heads = {"train": ["learned_pooling", "adapter_64_shared"], "batch": {"windows": 4}, "epochs": 2}
    return {**tiny, "finetune": {"fractions": []}, "heads": heads}


def run(settings, out, *overrides):
    return bertvision.run(bertvision.build_experiment(settings, overrides), out)


def encode_train(settings, out, **changes):
    given = {"task": "squad2", "encoder": settings["encoder"], "settings": {"windows": settings["windows"]}}
    return bertvision.encode(settings["data"]["train"], out, **{**given, **changes})


def weights_of(out):
    paths = sorted((out / "heads").rglob("*.safetensors"))
    return {str(path.relative_to(out)): load_file(path) for path in paths}


def test_heads_trained_from_a_folder_are_those_trained_from_memory_and_near_live_ones(settings, tmp_path):
    encode_train(settings, tmp_path / "states")
    found = run(settings, tmp_path / "found", f"states.folder={tmp_path / 'states'}")
    kept = run(settings, tmp_path / "kept", "states=memory")
    run(settings, tmp_path / "live", "states=live")
    assert [record.states for record in found] == ["folder, bf16"] * 2
    assert [record.scores for record in found] == [record.scores for record in kept]
    one, other, third = (weights_of(tmp_path / name) for name in ("found", "kept", "live"))
    for path, tensors in one.items():
        for name, weight in tensors.items():
            assert torch.equal(weight, other[path][name])
            torch.testing.assert_close(weight, third[path][name], rtol=0, atol=1e-2)


def test_a_folder_serves_all_seeds_and_parts_of_its_data(settings, tmp_path):
    encode_train(settings, tmp_path / "states")
    parts = ("heads.data_fraction=0.5", "seeds=[1, 2]")
    found = run(settings, tmp_path / "found", f"states.folder={tmp_path / 'states'}", *parts)
    kept = run(settings, tmp_path / "kept", "states=memory", *parts)
    assert [record.scores for record in found] == [record.scores for record in kept]


@pytest.mark.parametrize(
    ("changes", "overrides", "told"),
    [
        ({"layers": [0, 2]}, (), r'layers was \[0, 2\] and is now "all"'),
        ({"pooling": "mean"}, (), 'pooling was "mean" and is now null'),
        ({}, ("windows.stride=5",), "windows.stride was 4 and is now 5"),
        ({"task": None}, (), 'data was "[0-9a-f]{64}" and is now "[0-9a-f]{64}"'),
        ({}, ("finetune.fractions=[1]",), 'encoder was "[0-9a-f]{64}" and is now "[0-9a-f]{64}"'),
    ],
)
def test_a_run_refuses_a_folder_of_other_states_with_both_values(changes, overrides, told, settings, tmp_path):
    encode_train(settings, tmp_path / "states", **changes)
    with pytest.raises(FolderError, match=f"holds other states .{told}"):
        run(settings, tmp_path / "out", f"states.folder={tmp_path / 'states'}", *overrides)


def test_a_folder_that_lacks_windows_is_empty_cut_short_or_damaged_is_refused(settings, small_shards, tmp_path):
    folder = tmp_path / "states"
    given = settings, tmp_path / "out", f"states.folder={folder}"
    with pytest.raises(FolderError, match="holds no extracted states"):
        run(*given)
    encode_train(settings, folder)
    shard = folder / "states-00001.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with pytest.raises(FolderError, match=r"states-00001\.safetensors: damaged"):
        run(*given)
    (folder / "states.json").rename(folder / "unfinished.json")
    with pytest.raises(FolderError, match="its extraction was cut short"):
        run(*given)
    part = {**settings, "data": {**settings["data"], "train": settings["data"]["train"] + "[:3]"}}
    encode_train(part, tmp_path / "part")
    with pytest.raises(FolderError, match="lacks 5 of 8 windows"):
        run(settings, tmp_path / "out", f"states.folder={tmp_path / 'part'}")


def test_heads_of_rows_train_from_pooled_states(saved_encoder, tmp_path):
    rows = [("the river was in the stone", "river"), ("hannah built the weir", "weir")] * 4
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(",".join(row) for row in rows))
    data = {"train": str(tmp_path / "rows.csv"), "dev": str(tmp_path / "rows.csv")}
    settings = {"task": "classification", "data": data, "encoder": str(saved_encoder), "device": "cpu"}
    settings |= {"heads": {"train": ["last_linear", "regression"], "epochs": 2, "baseline": False}}
    settings |= {"finetune": {"fractions": []}, "states": {"pooling": "mean"}}
    bertvision.encode(
        data["train"], tmp_path / "states", encoder=str(saved_encoder), task="classification", pooling="mean"
    )
    records = run(settings, tmp_path / "out", f"states.folder={tmp_path / 'states'}")
    assert {record.states for record in records if record.kind == "head"} == {"folder, bf16"}
