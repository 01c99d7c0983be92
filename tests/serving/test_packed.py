"""Models in 8 bits whose weights torch and onnxruntime read from the same files (tools/pack_model.py)."""

import onnx
import pack_model
import pytest
import torch
from safetensors.torch import load_file

import bertvision
from bertvision.encoder.load import load_encoder
from bertvision.serving.onnx_model import OnnxEngine
from bertvision.serving.torch_model import open_model
from bertvision.training.device import choose_compute

QUESTION, CONTEXT = "who built the weir?", "the weir was built in 1887 by hannah coyle. the river was by the stone."
KINDS = {"squad2": ((), "adapter_64_shared_skip"), "sst2": (("bad", "good"), "learned_pooling")}


@pytest.fixture(params=KINDS)
def folders(request, make_folder, tmp_path, monkeypatch):
    """A model as `save` writes it, and packed."""
    monkeypatch.setattr(pack_model, "LEAST", 200)  # the tiny encoder has no larger matrices
    labels, head = KINDS[request.param]
    bertvision.load(make_folder(request.param, labels, head), device="cpu").save_pretrained(tmp_path / "saved")
    pack_model.main(tmp_path / "saved", tmp_path / "packed")
    return tmp_path / "saved", tmp_path / "packed"


def test_onnxruntime_and_torch_answer_alike_from_the_same_numbers(folders):
    packed = folders[1]
    by_torch = open_model(packed, choose_compute("cpu", "float32"))
    by_graph = bertvision.load(packed)
    assert isinstance(by_graph.served.engine, OnnxEngine)
    other = type(by_graph)(by_torch)
    given = (QUESTION, CONTEXT) if by_graph.served.config.task == "squad2" else (CONTEXT,)
    found, expected = (each(*given).as_dict() for each in (by_graph, other))
    for name in expected:
        is_number = isinstance(expected[name], float)
        assert found[name] == (pytest.approx(expected[name], abs=1e-4) if is_number else expected[name])


def test_every_number_is_there_once_and_the_graph_names_it(folders):
    packed = folders[1]
    graph = onnx.load(packed / "model.onnx", load_external_data=False).graph
    places = [{each.key: each.value for each in tensor.external_data} for tensor in graph.initializer]
    files = {"rounded.safetensors", "head.safetensors"}
    assert {place["location"] for place in places if place} == files
    floats = [tensor for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT]
    assert sum(len(tensor.raw_data) for tensor in floats if not tensor.external_data) < 1_000  # bytes
    named = sum(int(place["length"]) for place in places if place)
    held = sum(value.nbytes for file in files for value in load_file(packed / file).values())
    assert 0.6 * held < named <= held  # what a graph has no use for, such as a pooler, is for torch alone


def test_a_weight_is_rounded_by_at_most_half_a_step_of_its_row(folders):
    saved, packed = folders
    whole, rounded = (load_encoder(str(place)).model.state_dict() for place in (saved, packed))
    stored = load_file(packed / "rounded.safetensors")
    matrices = [name for name, value in stored.items() if value.dtype == torch.int8]
    assert len(matrices) > 10
    for name, value in whole.items():
        row = value.abs().amax(dim=1, keepdim=True) if name in matrices else torch.zeros(())
        assert ((rounded[name] - value).abs() <= row / 127 / 2 * 1.001).all()
