import hashlib
import json
import shutil
import subprocess
import sys
import types
from collections import Counter

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import bertvision
from bertvision.cli import app
from bertvision.data.example import Question
from bertvision.encoder.load import load_encoder
from bertvision.errors import FolderError, MissingExtraError, SettingsError
from bertvision.files import given_folder
from bertvision.heads.head import Head
from bertvision.model_config import SHIPPED
from bertvision.model_folder import Model, load_model
from bertvision.serving import onnx_export, onnx_model
from bertvision.serving.onnx_export import export_onnx
from bertvision.windows.window import cut_windows

from .conftest import write_model

QUESTION = "who built the weir?"
LONG = "the weir was built in 1887 by hannah coyle. the river was by the stone, where hannah was. " * 2
CONTEXTS = [LONG, "the weir", "hannah coyle built the stone weir in 1887", LONG[::-1]]
KINDS = {
    "squad2": ((), "adapter_64_shared_skip"),
    "sst2": (("bad", "good"), "learned_pooling"),
    "ner": (("O", "B-A", "I-A"), "last_linear"),
}


@pytest.fixture(scope="session")
def exported(saved_encoder, tmp_path_factory):
    """For every task: the MODEL_DIR and the folder that was exported from it."""
    places = {}
    for task, (labels, head) in KINDS.items():
        place = tmp_path_factory.mktemp("exported")
        write_model(load_encoder(str(saved_encoder)), place / "torch", task, labels, head)
        export_onnx(place / "torch", place / "onnx")
        places[task] = place
    return places


@pytest.fixture(scope="session")
def int8(exported, tmp_path_factory):
    place = tmp_path_factory.mktemp("int8") / "onnx"
    command = ["save", str(exported["squad2"] / "torch"), "--onnx", "--out", str(place), "--int8", "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["bytes"] == (place / "model.onnx").stat().st_size
    assert told["float32"]["largest"] <= 1e-4 < told["int8"]["largest"]
    return place


def both(exported, task):
    return [bertvision.load(exported[task] / name, device="cpu") for name in ("torch", "onnx")]


def test_an_exported_reader_gives_torchs_answers_also_where_contexts_need_several_windows(exported):
    for one, other in zip(
        *(reader([QUESTION] * 4, CONTEXTS, top_k=5) for reader in both(exported, "squad2")), strict=True
    ):
        assert [(each.text, each.start, each.end, each.window) for each in one] == [
            (each.text, each.start, each.end, each.window) for each in other
        ]
        for name in ("probability", "no_answer_probability", "score"):
            found, expected = ([getattr(each, name) for each in answers] for answers in (other, one))
            assert found == pytest.approx(expected, abs=1e-4)


def test_an_exported_classifier_gives_torchs_probabilities(exported):
    one, other = (model(CONTEXTS) for model in both(exported, "sst2"))
    assert [each.label for each in one] == [each.label for each in other]
    assert [each.probability for each in one] == pytest.approx([each.probability for each in other], abs=1e-4)


def test_an_exported_tagger_gives_torchs_tags(exported):
    one, other = (model(CONTEXTS) for model in both(exported, "ner"))
    for expected, found in zip(one, other, strict=True):
        assert [word.tag for word in found.words] == [word.tag for word in expected.words]
        sure = [word.probability for word in expected.words]
        assert [word.probability for word in found.words] == pytest.approx(sure, abs=1e-4)


def test_exported_models_of_every_kind_run_without_torch_and_transformers(exported):
    folders = [str(exported[task] / "onnx") for task in ("sst2", "ner", "squad2")]
    code = f"""
import sys
sys.modules |= {{"torch": None, "jaxtyping": None, "transformers": None, "huggingface_hub": None}}
import bertvision
from bertvision.cli import app
classifier, tagger, reader = map(bertvision.load, {folders!r})
print(classifier("the weir").label, *(word.tag for word in tagger("the weir").words))
print(reader({QUESTION!r}, {LONG!r}, top_k=2)[0].text)
app(["ask", "--model", {folders[2]!r}, "--question", {QUESTION!r}, "--context", {LONG!r}, "--json"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    classifier, tagger, reader = (bertvision.load(exported[task] / "torch") for task in ("sst2", "ner", "squad2"))
    words = [classifier("the weir").label, *(word.tag for word in tagger("the weir").words)]
    answer = reader(QUESTION, LONG).text
    first, second, asked = done.stdout.split("\n", 2)
    assert [first, second, json.loads(asked)[0]["answers"][0]["text"]] == [" ".join(words), answer, answer]


@pytest.mark.parametrize("task", KINDS)
def test_an_exported_model_predicts_a_file_as_torch_does(exported, tmp_path, task):
    files = {"squad2": "sample:dev[:3]", "sst2": "rows.tsv", "ner": "rows.conll"}
    (tmp_path / "rows.tsv").write_text("sentence\tlabel\nthe weir\tgood\nhannah coyle built it\tbad\n")
    (tmp_path / "rows.conll").write_text("the O\nweir B-A\n\nhannah B-A\ncoyle I-A\n\n")
    data = files[task] if ":" in files[task] else str(tmp_path / files[task])
    one, other = (
        bertvision.predict(str(exported[task] / name), data, str(tmp_path / name), {"device": "cpu"})
        for name in ("torch", "onnx")
    )
    assert other.summary == one.summary
    assert other.scores == pytest.approx(one.scores, abs=1e-4)
    for name in ("predictions.json", *(["null_odds.json"] if task == "squad2" else [])):
        expected, found = (json.loads((tmp_path / each / name).read_text()) for each in ("torch", "onnx"))
        assert found == (pytest.approx(expected, abs=1e-4) if name == "null_odds.json" else expected)


def test_an_exported_model_predicts_texts_and_shards_without_torch_and_transformers(exported, tmp_path):
    folder, shards = str(exported["sst2"] / "onnx"), tmp_path / "shards"
    shards.mkdir()
    (shards / "a.jsonl").write_text(json.dumps({"sentence": "the weir"}) + "\n")
    code = f"""
import sys
sys.modules |= {{"torch": None, "jaxtyping": None, "transformers": None, "huggingface_hub": None}}
from bertvision.cli import app
app(["predict", {folder!r}, "the weir", "--json"], standalone_mode=False)
app(["predict", {folder!r}, "--data", {str(shards)!r}, "--out", {str(tmp_path / "out")!r}])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = bertvision.load(exported["sst2"] / "torch")("the weir")
    written = json.loads((tmp_path / "out" / "a.jsonl").read_text())
    assert (json.loads(done.stdout.rpartition("]")[0] + "]")[0]["label"], written["label"]) == (expected.label,) * 2


def test_an_exported_model_predicts_on_the_cpu_and_says_so(exported, tmp_path):
    with pytest.raises(SettingsError, match="which runs on the CPU; leave device and precision"):
        bertvision.predict(exported["squad2"] / "onnx", "sample:dev", None, {"device": "cuda"})


@pytest.mark.parametrize("package", ["", "torch"])
def test_a_server_refuses_layers_of_an_exported_model_without_importing_torch(exported, package):
    asked = {"question": QUESTION, "context": LONG}
    code = f"""
import sys
if {package!r}:
    sys.modules[{package!r}] = None  # as if it were not installed
import bertvision
from bertvision.serving.http.app import build_app
from bertvision.serving.http.config import ServeConfig
from starlette.testclient import TestClient
reader = bertvision.load({str(exported["squad2"] / "onnx")!r})
with TestClient(build_app({{"weir": reader}}, ServeConfig())) as client:
    for path, more in (("/answer", {{}}), ("/xray", {{}}), ("/answer", {{"layers": True}})):
        found = client.post(path, json={asked!r} | more)
        print(found.status_code, found.json().get("detail"))
print(sys.modules.get("torch"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    given, *refused, torch_there = done.stdout.splitlines()
    assert (given, torch_there) == ("200 None", "None")
    assert len(refused) == 2
    assert all(line.startswith("422 onnx: is an exported ONNX model, which gives logits") for line in refused)


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_missing_package_is_named_with_its_extra(exported, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package}: pip install 'bertvision\[onnx\]'"):
        export_onnx(exported["squad2"] / "torch", tmp_path / "onnx")


def test_logits_do_not_depend_on_a_windows_company(exported, int8):
    for folder, tolerance in ((exported["squad2"] / "onnx", 1e-5), (int8, 0)):
        reader = bertvision.load(folder)
        together = reader([QUESTION] * 4, CONTEXTS)
        alone = [reader(QUESTION, context) for context in CONTEXTS]
        assert [each.text for each in together] == [each.text for each in alone]
        assert [each.score for each in together] == pytest.approx([each.score for each in alone], abs=tolerance)


def test_attention_is_one_operator_of_the_graph(exported):
    graph = onnx.load(exported["squad2"] / "onnx" / "model.onnx").graph
    operators = Counter(node.op_type for node in graph.node)
    layers = load_model(exported["squad2"] / "torch").encoder.model.config.num_hidden_layers
    assert operators["Attention"] == layers
    assert not operators.keys() & {"Softmax", "IsNaN"}


@pytest.mark.parametrize(("rounding", "is_right"), [(3e-5, True), (1e-3, False)])
def test_large_logits_may_be_further_apart(exported, monkeypatch, tmp_path, rounding, is_right):
    model, run_graph = load_model(exported["squad2"] / "torch"), onnx_export.run_graph
    for weights in model.head.readout.parameters():
        weights.data *= 1000.0

    def rounded(*given):
        logits = run_graph(*given).astype(np.float64)
        return np.where(
            np.abs(logits) < 1e30, logits * (1 + rounding), logits
        )  # padding has the lowest number there is

    monkeypatch.setattr(onnx_export, "run_graph", rounded)
    onnx_export.write_graph(model, tmp_path / "model.onnx")
    found = onnx_export.compare_graph(model, tmp_path / "model.onnx")
    assert found.largest > 1e-4  # what logits near 1 may differ by
    assert (found.largest <= found.bound) == is_right


def test_the_folder_is_all_that_is_needed(exported, tmp_path):
    expected = bertvision.load(exported["squad2"] / "onnx")(QUESTION, LONG)
    shutil.copytree(exported["squad2"] / "onnx", tmp_path / "elsewhere")
    assert bertvision.load(tmp_path / "elsewhere")(QUESTION, LONG) == expected
    names = {path.name for path in (tmp_path / "elsewhere").iterdir()}
    assert names == {
        *("model.onnx", "model.json", "calibration.json", "README.md", "tokenizer.json", "tokenizer_config.json"),
        "sha256.json",
    }
    assert "at most" in (tmp_path / "elsewhere" / "README.md").read_text()


def test_int8_is_smaller_and_near(exported, int8):
    sizes = [(folder / "model.onnx").stat().st_size for folder in (exported["squad2"] / "onnx", int8)]
    assert sizes[1] < sizes[0]
    one, other = (bertvision.load(folder).served for folder in (exported["squad2"] / "onnx", int8))
    windows = cut_windows([Question("q", QUESTION, LONG, (), "")], one.tokenizer, one.config.windows, labelled=False)
    exact, rounded = one.logits(windows), other.logits(windows)
    assert not np.array_equal(exact, rounded)
    assert np.abs(exact - rounded).max() < 0.1 * np.abs(exact).max()
    assert json.loads((int8 / "model.json").read_text())["int8"] is True


def test_int8_computes_the_same_on_cpus_that_add_up_in_16_bits_and_in_32(int8, exported, monkeypatch):
    graph = onnx.load(int8 / "model.onnx").graph
    kinds = {each.name: each.data_type for each in graph.initializer}
    assert {kinds[node.input[1]] for node in graph.node if node.op_type == "MatMulInteger"} == {onnx.TensorProto.INT8}
    monkeypatch.setattr(onnx_model, "has_vnni", lambda: False)  # what is right on every CPU
    one, other = (bertvision.load(folder).served for folder in (exported["squad2"] / "onnx", int8))
    windows = cut_windows([Question("q", QUESTION, LONG, (), "")], one.tokenizer, one.config.windows, labelled=False)
    exact, rounded = one.logits(windows), other.logits(windows)
    assert np.abs(exact - rounded).max() < 0.1 * np.abs(exact).max()
    if onnx_model.CPU_INFO.exists() and "vnni" in onnx_model.CPU_INFO.read_text():
        monkeypatch.setattr(onnx_model, "has_vnni", lambda: True)
        np.testing.assert_allclose(bertvision.load(int8).served.logits(windows), rounded, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("flags", "has"), [("avx2 avx512f avx512_vnni", True), ("avx2 avx_vnni", True), ("avx2 avx512f", False)]
)
def test_a_cpu_is_asked_for_the_instructions_that_add_up_in_32_bits(flags, has, tmp_path):
    (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags : fpu {flags}\n")
    assert onnx_model.has_vnni(tmp_path / "cpuinfo") is has
    assert not onnx_model.has_vnni(tmp_path / "none")  # another system: the slower way, which is right everywhere


def test_int8_of_a_classifier_leaves_the_product_that_gives_its_logits(exported, tmp_path):
    export_onnx(exported["sst2"] / "torch", tmp_path / "int8", int8=True)
    nodes = onnx.load(tmp_path / "int8" / "model.onnx").graph.node
    assert [node.op_type for node in nodes][-2:] == ["MatMul", "Add"]
    assert "MatMulInteger" in {node.op_type for node in nodes}
    one, other = (bertvision.load(folder) for folder in (exported["sst2"] / "onnx", tmp_path / "int8"))
    assert one("the weir").probability == pytest.approx(other("the weir").probability, abs=0.1)


def test_the_default_model_is_exported_with_its_calibration(exported, tmp_path, monkeypatch):
    shutil.copytree(exported["squad2"] / "torch", tmp_path / "shipped")
    calibration = {"threshold": -8.5, "temperature": 3.2}
    (tmp_path / "shipped" / "calibration.json").write_text(json.dumps(calibration))
    monkeypatch.setitem(SHIPPED, "default", tmp_path / "shipped")
    done = CliRunner().invoke(app, ["save", "default", "--onnx", "--out", str(tmp_path / "onnx"), "--int8"])
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "onnx" / "calibration.json").read_text())
    assert written == calibration | {"official_threshold": None, "min_accuracy": None}
    assert bertvision.load(tmp_path / "onnx").served.calibration.temperature == 3.2
    assert "| temperature | 3.2000 |" in (tmp_path / "onnx" / "README.md").read_text()


def test_an_exported_model_is_saved_as_it_is(exported, tmp_path):
    reader = bertvision.load(exported["squad2"] / "onnx")
    reader.save_pretrained(tmp_path / "saved")
    for path in (exported["squad2"] / "onnx").iterdir():
        assert (tmp_path / "saved" / path.name).read_bytes() == path.read_bytes()
    with pytest.raises(SettingsError, match="saved as it is"):
        reader.save_pretrained(tmp_path / "other", [])
    assert not (tmp_path / "other").exists()


def test_an_exported_model_is_saved_without_files_that_its_folder_links_to(exported, tmp_path):
    shutil.copytree(exported["squad2"] / "onnx", tmp_path / "onnx")
    (tmp_path / "key").write_text("opensesame")
    (tmp_path / "onnx" / "notes.txt").symlink_to(tmp_path / "key")
    with pytest.raises(FolderError, match=r"notes\.txt: is a link to .* outside its folder"):
        bertvision.load(tmp_path / "onnx")
    model = bertvision.load(tmp_path / "onnx", allow_outside=True)
    with pytest.raises(FolderError, match=r"notes\.txt: is a link to a file elsewhere"):
        model.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_an_exported_model_in_the_cache_of_the_hub_is_saved_as_files(exported, tmp_path):
    snapshot, blobs = tmp_path / "snapshots" / "1", tmp_path / "blobs"
    shutil.copytree(exported["squad2"] / "onnx", blobs)
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(path)
    bertvision.load(snapshot).save_pretrained(tmp_path / "saved")
    saved = {path.name: path for path in (tmp_path / "saved").iterdir()}
    assert not any(path.is_symlink() for path in saved.values())
    assert {name: path.read_bytes() for name, path in saved.items()} == {
        p.name: p.read_bytes() for p in blobs.iterdir()
    }


def test_what_an_exported_model_cannot_do_is_told(exported):
    folder = exported["squad2"] / "onnx"
    reader = bertvision.load(folder)
    with pytest.raises(SettingsError, match="no layers' states; load the PyTorch folder"):
        reader(QUESTION, LONG, layers=True)
    with pytest.raises(SettingsError, match="runs on the CPU"):
        bertvision.load(folder, device="cuda")
    with pytest.raises(FolderError, match="exported ONNX model"):
        load_model(folder)


@pytest.mark.parametrize("damage", ["model.onnx", "tokenizer.json"])
def test_a_folder_that_lacks_something_is_refused(exported, tmp_path, damage):
    shutil.copytree(exported["squad2"] / "onnx", tmp_path / "onnx")
    (tmp_path / "onnx" / damage).unlink()
    with pytest.raises(FolderError, match="export the model again|is missing; put it back"):
        bertvision.load(tmp_path / "onnx")


def test_a_graph_that_was_changed_is_refused(exported, tmp_path):
    shutil.copytree(exported["squad2"] / "onnx", tmp_path / "onnx")
    content = bytearray((tmp_path / "onnx" / "model.onnx").read_bytes())
    content[-1] ^= 1
    (tmp_path / "onnx" / "model.onnx").write_bytes(content)
    with pytest.raises(FolderError, match="not the one that was exported"):
        bertvision.load(tmp_path / "onnx")


def swap_graph(folder, model):
    """Put another graph into a folder, and its hash into the settings, as an attacker would."""
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    settings = json.loads((folder / "model.json").read_text())
    settings["sha256"] = hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest()
    (folder / "model.json").write_text(json.dumps(settings))


def endless_loop():
    """A node that goes on for ever."""
    true = onnx.helper.make_node("Constant", [], ["go_on"], value_int=1)
    cast = onnx.helper.make_node("Cast", ["go_on"], ["still"], to=onnx.TensorProto.BOOL)
    info = onnx.helper.make_tensor_value_info
    inputs = [info("step", onnx.TensorProto.INT64, []), info("before", onnx.TensorProto.BOOL, [])]
    body = onnx.helper.make_graph([true, cast], "body", inputs, [info("still", onnx.TensorProto.BOOL, [])])
    return onnx.helper.make_node("Loop", ["", "yes"], [], body=body)


@pytest.mark.parametrize(
    ("damage", "odd"),
    [
        ("loop", "the operator 'Loop'"),
        ("inner", "a graph inside of its graph"),
        ("domain", "an operator of 'evil.example'"),
        ("function", "functions of its own"),
        ("cut", "bytes that are no graph"),
    ],
)
def test_a_graph_with_what_is_never_exported_is_refused_before_it_runs(exported, tmp_path, damage, odd):
    shutil.copytree(exported["squad2"] / "onnx", tmp_path / "onnx")
    model = onnx.load(tmp_path / "onnx" / "model.onnx")
    if damage in ("loop", "inner"):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "yes"))
        model.graph.node.insert(0, endless_loop())
    if damage == "inner":
        model.graph.node[0].op_type = "Identity"
    if damage == "domain":
        model.graph.node[0].domain = "evil.example"
    if damage == "function":
        model.functions.append(onnx.FunctionProto(name="Add", domain=""))
    swap_graph(tmp_path / "onnx", model)
    if damage == "cut":
        content = (tmp_path / "onnx" / "model.onnx").read_bytes()
        swap_graph(tmp_path / "onnx", types.SimpleNamespace(SerializeToString=lambda: content[: len(content) // 2]))
    with pytest.raises(FolderError, match=rf"model.onnx: has {odd}, which `bertvision` does not export"):
        bertvision.load(tmp_path / "onnx")


def test_a_folder_that_holds_something_is_never_replaced(exported, tmp_path):
    (tmp_path / "letter.txt").write_text("dear hannah")
    done = CliRunner().invoke(app, ["save", str(exported["squad2"] / "torch"), "--onnx", "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "is not empty; choose a new folder" in " ".join(done.output.split())
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_graph_whose_logits_differ_is_refused_and_nothing_is_left(exported, tmp_path, monkeypatch):
    def write_another(model, path):
        shutil.copy(exported["squad2"] / "onnx" / "model.onnx", path)
        with torch.no_grad():
            model.head.readout.linear.bias += 2e-2

    monkeypatch.setattr(onnx_export, "write_graph", write_another)
    with pytest.raises(SettingsError, match=r"differ from PyTorch's by 0\.02"):
        export_onnx(exported["squad2"] / "torch", tmp_path / "onnx")
    assert list(tmp_path.iterdir()) == []


def test_int8_that_would_answer_otherwise_is_refused_and_nothing_is_left(exported, tmp_path, monkeypatch):
    run_graph = onnx_export.run_graph

    def turned(session, *given):
        logits = run_graph(session, *given)
        has_int8 = any(node.op_type == "MatMulInteger" for node in onnx.load(session._model_path).graph.node)
        return np.where(np.abs(logits) < 1e30, -logits, logits) if has_int8 else logits

    monkeypatch.setattr(onnx_export, "run_graph", turned)
    with pytest.raises(SettingsError, match=r"int8 changes this model's logits by up to .*without `int8`"):
        export_onnx(exported["squad2"] / "torch", tmp_path / "onnx", int8=True)
    assert list(tmp_path.iterdir()) == []


class Fixed(nn.Module):
    """Works for one length alone."""

    features = 32

    def forward(self, states, mask, segments):
        return states[:, -1] if states.shape[2] == 16 else states[:, 0]


def test_a_head_that_is_not_the_same_for_every_length_is_refused(exported, tmp_path, monkeypatch):
    def load_other(folder, pooler, *, allow_outside):
        model = load_model(folder, pooler, allow_outside=allow_outside)
        return Model(model.config, model.encoder, Head(Fixed(), model.head.readout))

    monkeypatch.setattr("bertvision.serving.torch_model.load_model", load_other)
    with pytest.raises(SettingsError, match="cannot be exported to ONNX") as caught:
        export_onnx(exported["ner"] / "torch", tmp_path / "onnx")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["tokenizer.json", "calibration.json"])
def test_a_flipped_bit_is_refused(exported, tmp_path, name):
    shutil.copytree(exported["squad2"] / "onnx", tmp_path / "onnx")
    content = bytearray((tmp_path / "onnx" / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "onnx" / name).write_bytes(content)
    with pytest.raises(FolderError, match=rf"{name}: damaged \(sha256"):
        bertvision.load(tmp_path / "onnx")


def test_of_two_exports_into_one_folder_the_second_is_refused(exported, tmp_path):
    with given_folder(tmp_path / "onnx"), pytest.raises(FolderError, match="another bertvision is working in it"):
        export_onnx(exported["squad2"] / "torch", tmp_path / "onnx")
