"""MODEL_DIR -> a folder that onnxruntime runs without torch, checked against torch before it is there."""

import importlib.util
from pathlib import Path
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from bertvision.encoder.load import quiet_transformers
from bertvision.errors import EncoderError, FolderError, MissingExtraError, SettingsError
from bertvision.files import check_folder, sha256_of, whole_folder, write_json, write_text
from bertvision.heads.head import score_columns
from bertvision.model_config import CALIBRATION, CONFIG, UseConfig
from bertvision.serving.onnx_graph import Difference, compare_graph, quiet, write_graph
from bertvision.serving.onnx_model import GRAPH, OnnxConfig, read_tokenizer
from bertvision.serving.served import ServedModel, open_model, saved_config
from bertvision.training.device import choose_compute
from bertvision.windows.rows import read_layouts
from bertvision.windows.tokens import tokenise

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
TOLERANCE = 1e-4  # of logits, between torch and ONNX in float32
# Letters with marks and ligatures, wide and blank characters, and what is no text at all.
PROBES = ["Who built the weir?", "naïve Café (1887) —  two\tblanks,\n東京 ﬁn don't U.S. e\u0301", "\u200b", ""]


class Exported(NamedTuple):
    """What was written, and how far its logits were from torch's on random batches."""

    folder: Path
    bytes: int
    float32: Difference
    int8: Difference | None

    def as_dict(self) -> dict[str, Any]:
        """Give everything as JSON values."""
        int8 = None if self.int8 is None else self.int8._asdict()
        return {**self._asdict(), "folder": str(self.folder), "float32": self.float32._asdict(), "int8": int8}

    def as_lines(self) -> list[str]:
        """Tell how far its logits were from torch's."""
        lines = [f"On random batches its logits in float32 were at most {self.float32.largest:.1e} from PyTorch's."]
        if self.int8 is not None:
            lines.append(
                f"Rounding products to int8 then changed them by up to {self.int8.largest:.2g}; "
                "`make bench NAME=inference` in the repository measures what it costs."
            )
        return lines


def export_onnx(model: Path, out: Path, *, int8: bool = False) -> Exported:
    """Write a model as one graph with all that `bertvision.load` needs; nothing is left at `out` where it is refused.

    With `int8` the weights of products are rounded to whole numbers, and activations while it runs.
    """
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "onnx")
    if check_folder(out).is_dir() and any(out.iterdir()):
        raise FolderError(f"{out}: is not empty; choose a new folder")
    served = open_model(model, choose_compute("cpu", "float32"))
    served.model.head.train(False)
    with whole_folder(out) as beside:
        found = _write_checked(served, beside / GRAPH, int8)
        _write_tokenizer(served.tokenizer, beside)
        write_json(beside / CONFIG, _config(served, beside / GRAPH, int8).model_dump(mode="json"))
        write_json(beside / CALIBRATION, served.calibration.model_dump(mode="json"))
        exported = Exported(out, (beside / GRAPH).stat().st_size, *found)
        write_text(beside / "README.md", "\n".join([served.card(), *_paragraph(exported)]))
    return exported


def _write_checked(served: ServedModel, path: Path, int8: bool) -> tuple[Difference, Difference | None]:
    write_graph(served.model, path)
    found = compare_graph(served.model, path)
    if not found.largest <= TOLERANCE:
        raise SettingsError(
            f"the exported logits differ from PyTorch's by {found.largest:.2g} on {found.rows} x {found.tokens} tokens "
            f"(at most {TOLERANCE:g} is right); nothing was written, export another head than "
            f"{served.config.head.name!r}, and please report this"
        )
    if not int8:
        return found, None
    _round_weights(path)
    return found, compare_graph(served.model, path)


def _round_weights(path: Path) -> None:
    """Replace a graph by one with int8 products."""
    from onnx import load
    from onnxruntime.quantization import QuantType, quantize_dynamic

    whole = path.with_name(f"whole-{path.name}")
    path.rename(whole)
    # The last product gives the logits themselves: its weights are few and its rounding would be seen in every answer.
    products = [node.name for node in load(whole, load_external_data=False).graph.node if node.op_type == "MatMul"]
    with quiet():
        quantize_dynamic(
            whole,
            path,
            per_channel=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=products[-1:],
            reduce_range=False,
        )
    whole.unlink()


def _write_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write the tokenizer; refuse one that is another when it is read again."""
    with quiet_transformers():
        tokenizer.save_pretrained(folder)
    if _cuts(read_tokenizer(folder)) != _cuts(tokenizer):
        raise EncoderError("the encoder's tokenizer cuts texts differently once it is saved; it cannot be exported")


def _cuts(tokenizer: PreTrainedTokenizerBase) -> list[Any]:
    """Tell all that features ask of a tokenizer, on a few texts."""
    arrays = [part for layout in read_layouts(tokenizer) for part in layout]
    arrays += [part for pair in tokenise(tokenizer, PROBES) for part in pair]
    return [tokenizer.pad_token_id, tokenizer.unk_token_id, *(array.tolist() for array in arrays)]


def _config(served: ServedModel, graph: Path, int8: bool) -> OnnxConfig:
    own = saved_config(served.config, served.calibration)
    return OnnxConfig(
        **{name: getattr(own, name) for name in UseConfig.model_fields},
        head=own.head.name,
        columns=score_columns(served.model.head),
        sha256=sha256_of(graph),
        int8=int8,
    )


def _paragraph(exported: Exported) -> list[str]:
    run = f"`{GRAPH}` holds encoder and head; `bertvision.load` runs it with onnxruntime, without importing torch."
    return ["## ONNX", "", run, *exported.as_lines(), ""]
