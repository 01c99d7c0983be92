"""Packs a model as the default model ships: python tools/pack_model.py MODEL_DIR OUT.

OUT is a MODEL_DIR that torch loads and onnxruntime runs, with every number in it once. `rounded.safetensors` holds the
encoder, its products and tables in 8 bits with a scale for each row; `head.safetensors` the head as it was. The graph
`model.onnx` names the tensors inside these two files as external data, by offset and length. `sha256.json` has the hash
of every file but the card. Torch and onnxruntime are compared before anything is written.

`python tools/pack_model.py MODEL_DIR src/bertvision/default_model` replaces the default model; its card and what is
measured of it follow with `tools/probabilities.py` and `make pages`.
"""

import json
import shutil
import struct
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from bertvision.encoder.encode import freeze
from bertvision.encoder.folder import ROUNDED, SCALE
from bertvision.encoder.load import load_encoder, quiet_transformers
from bertvision.files import whole_folder, write_json
from bertvision.hub import CARD
from bertvision.manifest import write_manifest
from bertvision.model_config import CALIBRATION, ONNX_CONFIG
from bertvision.model_folder import WEIGHTS, Model, load_model, save_head
from bertvision.serving.model import read_calibration
from bertvision.serving.onnx_export import compare_graph, onnx_config, write_graph
from bertvision.serving.onnx_model import GRAPH
from bertvision.serving.torch_model import saved_config
from bertvision.training.checkpoint import fingerprint, save_tensors
from bertvision.training.device import choose_compute

LEAST = 2_000  # numbers of a matrix that is rounded; smaller ones stay as they are
LEAST_NAMED = 16  # numbers of a tensor that is named in a file; smaller ones stay in the graph

Array = npt.NDArray[np.float32]


class Place(NamedTuple):
    """Where a tensor of the graph lies."""

    file: str
    name: str
    is_transposed: bool


def main(source: Path, out: Path) -> None:
    """Write the folder."""
    with tempfile.TemporaryDirectory() as beside:
        packed = Path(beside) / "model"
        packed.mkdir()
        pack(source, packed)
        if out.is_dir():
            shutil.rmtree(out)
        with whole_folder(out) as whole:
            shutil.copytree(packed, whole, dirs_exist_ok=True)
    for path in sorted(out.iterdir()):
        print(f"{path.stat().st_size:>12,}  {path.name}")


def pack(source: Path, out: Path) -> None:
    """Write all files of a packed model into an empty folder."""
    model = load_model(source)
    calibration = read_calibration(source, model.config)
    rounded = rounded_weights(model.encoder.model.state_dict())
    save_tensors(out / ROUNDED, rounded)
    with quiet_transformers():
        model.encoder.model.config.save_pretrained(out)
        model.encoder.tokenizer.save_pretrained(out)
    shutil.copyfile(source / CARD, out / CARD)
    write_json(out / CALIBRATION, calibration.model_dump(mode="json"))
    save_head(out, model.head, saved_config(model.config, calibration))
    own = load_rounded(out, model)
    freeze(own.encoder, choose_compute("cpu", "float32"))
    own.head.train(False)
    with tempfile.TemporaryDirectory() as beside:
        whole = Path(beside) / GRAPH
        write_graph(own, whole)
        write_small_graph(whole, out, places_of_weights(own))
    found = compare_graph(own, out / GRAPH)
    print(f"torch and onnxruntime differ by {found.largest:.1e} at most (largest logit {found.scale:.1f})")
    if not found.largest <= found.bound:
        sys.exit("the graph computes something else; nothing was written")
    write_json(out / ONNX_CONFIG, onnx_config(own, calibration, out / GRAPH).model_dump(mode="json"))
    write_manifest(out, editable=[CARD])


def rounded_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return products and tables in 8 bits, with the scale of each row; everything else as it is."""
    found: dict[str, Tensor] = {}
    for name, value in weights.items():
        if value.ndim != 2 or value.numel() <= LEAST:
            found[name] = value
            continue
        scale = value.abs().amax(dim=1) / 127
        scale[scale == 0] = 1
        found[name] = (value / scale[:, None]).round().clamp(-127, 127).to(torch.int8)
        found[name + SCALE] = scale
    return found


def load_rounded(folder: Path, model: Model) -> Model:
    """Return the model with rounded weights, and write their fingerprint into its settings."""
    weights = fingerprint(load_encoder(str(folder)).model)
    config = saved_config(model.config, read_calibration(folder, model.config))
    save_head(folder, model.head, config.model_copy(update={"encoder_fingerprint": weights}))
    return load_model(folder)


def places_of_weights(model: Model) -> dict[tuple[tuple[int, ...], bytes], Place]:
    """Return where the numbers of every weight lie, by shape and bytes: the exporter transposes and renames them."""
    found: dict[tuple[tuple[int, ...], bytes], Place] = {}
    for file, module in ((ROUNDED, model.encoder.model), (WEIGHTS, model.head)):
        for name, value in module.state_dict().items():
            array = value.numpy()
            if array.ndim == 2:
                found.setdefault(_key(array.T), Place(file, name, is_transposed=True))
            found[_key(array)] = Place(file, name, is_transposed=False)
    return found


def write_small_graph(source: Path, out: Path, places: Mapping[tuple[tuple[int, ...], bytes], Place]) -> None:
    """Write a graph whose weights lie in the safetensors files of its folder."""
    graph = (model := onnx.load(source)).graph
    headers = {file: read_header(out / file) for file in (ROUNDED, WEIGHTS)}
    tensors, nodes = [], []
    for tensor in graph.initializer:
        place = places.get(_key(numpy_helper.to_array(tensor)))
        if place is None or np.prod(tensor.dims, dtype=int) < LEAST_NAMED:
            tensors.append(tensor)
            continue
        offsets = headers[place.file]
        # What the nodes so far make: the file's tensor, then in float32, then transposed. The last has its old name.
        steps = [("DequantizeLinear", {"axis": 0})] if place.name + SCALE in offsets else []
        steps += [("Transpose", {"perm": [1, 0]})] if place.is_transposed else []
        names = [f"{tensor.name}.{number}" for number in range(len(steps))] + [tensor.name]
        tensors.append(_named(names[0], place.file, place.name, offsets))
        for number, (operator, options) in enumerate(steps):
            given = [names[number]]
            if operator == "DequantizeLinear":
                given.append(f"{tensor.name}{SCALE}")
                tensors.append(_named(given[1], place.file, place.name + SCALE, offsets))
            nodes.append(helper.make_node(operator, given, [names[number + 1]], **options))
    nodes += graph.node
    for each in nodes:
        del each.metadata_props[:]  # the exporter's stack traces
        each.doc_string = ""
    del graph.initializer[:], graph.node[:], graph.value_info[:], graph.metadata_props[:]
    graph.initializer.extend(tensors)
    graph.node.extend(nodes)
    onnx.save(model, out / GRAPH)


class Entry(NamedTuple):
    """A tensor inside a safetensors file."""

    dtype: str
    shape: tuple[int, ...]
    first: int  # byte of the file
    size: int


def read_header(path: Path) -> dict[str, Entry]:
    """Return the tensors of a safetensors file by name, and where each lies."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return {
        name: Entry(about["dtype"], tuple(about["shape"]), 8 + length + (at := about["data_offsets"])[0], at[1] - at[0])
        for name, about in header.items()
    }


def _named(called: str, file: str, name: str, entries: Mapping[str, Entry]) -> TensorProto:
    """Name a tensor inside a file."""
    entry = entries[name]
    kind = {"I8": TensorProto.INT8, "F32": TensorProto.FLOAT}[entry.dtype]
    tensor = TensorProto(name=called, data_type=kind, dims=entry.shape, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", file), ("offset", entry.first), ("length", entry.size)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _key(array: Array) -> tuple[tuple[int, ...], bytes]:
    return array.shape, np.ascontiguousarray(array).tobytes()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
