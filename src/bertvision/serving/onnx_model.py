"""Models saved as ONNX, and the default model, run by onnxruntime; no torch in here.

A MODEL_DIR may hold a graph of its own weights, as the default model does: its tensors are named inside the safetensors
files that torch reads, by offset and length. Settings of the graph stand in `onnx.json`.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from bertvision.errors import FolderError, SettingsError, needing_torch, told_as
from bertvision.files import read_json, sha256_of
from bertvision.hub import parse_snapshot
from bertvision.manifest import check_manifest
from bertvision.model_config import CONFIG, ONNX_CONFIG, ONNX_FORMAT, Calibration, UseConfig
from bertvision.predictions.logits import Logits
from bertvision.progress import SILENT, Progress
from bertvision.records import RunRecord
from bertvision.serving.model import Engine, ServedModel, WindowParts, read_calibration, split_logits
from bertvision.serving.onnx_graph import check_operators
from bertvision.serving.tokenizer import read_tokenizer
from bertvision.settings import Settings, validate
from bertvision.tasks import TASKS
from bertvision.windows.plan import CPU_TOKENS, lengths_of, pad_windows, places_of, plan_in_order_of_length
from bertvision.windows.window import Window

GRAPH = "model.onnx"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
PROVIDERS = ["CPUExecutionProvider"]
CPU_INFO = Path("/proc/cpuinfo")  # Linux's


class OnnxConfig(UseConfig):
    """All that is needed to use an exported model."""

    format: Literal["onnx-1"] = ONNX_FORMAT
    head: str
    columns: int  # logits per token or row
    sha256: str  # of the graph whose logits were compared with torch's, or that was made of it
    int8: bool


@runtime_checkable
class Session(Protocol):
    """What is used of onnxruntime.InferenceSession."""

    def run(self, names: None, feed: Mapping[str, npt.NDArray[Any]]) -> Sequence[npt.NDArray[Any]]:
        """Return all outputs."""
        ...

    def get_inputs(self) -> Sequence[Any]:
        """Describe the inputs."""
        ...

    def get_outputs(self) -> Sequence[Any]:
        """Describe the outputs."""
        ...


@dataclass(frozen=True, eq=False)
class OnnxEngine(Engine):
    """An exported encoder with its head."""

    folder: Path
    config: OnnxConfig
    pad_token_id: int
    session: Session

    def logits(self, windows: Sequence[Window], tokens: int, progress: Progress = SILENT) -> list[Logits]:
        """Run the graph over windows, in batches of like lengths."""
        lengths = lengths_of(windows)
        window_at = np.concatenate([[0], np.cumsum(lengths)])
        is_per_token = TASKS[self.config.task].kind.per == "token"
        size = int(window_at[-1]) if is_per_token else len(windows)
        logits = np.empty((size, self.config.columns), np.float32)
        # Activations in int8 are rounded by the extremes of a whole batch: company would change a window's logits.
        tokens = 1 if self.config.int8 else min(tokens, CPU_TOKENS)
        with progress.bar("predict", len(windows)) as bar:
            for rows in plan_in_order_of_length(lengths, tokens):
                ids, mask, segments = pad_windows([windows[row] for row in rows], self.pad_token_id)
                scores = run_graph(self.session, ids, mask, segments)
                if is_per_token:
                    logits[places_of(window_at, rows)] = scores[mask]
                else:
                    logits[rows] = scores
                bar.advance(len(rows))
        return split_logits(logits, windows, is_per_token=is_per_token)

    def parts(self, windows: Sequence[Window], tokens: int, progress: Progress = SILENT) -> list[WindowParts]:
        """Take logits apart by torch, where the folder has the weights for it: a graph gives logits alone."""
        return self._with_states.parts(windows, tokens, progress)

    def check_parts(self) -> None:
        """Refuse a folder with a graph alone."""
        self._with_states.check_parts()

    @cached_property
    def _with_states(self) -> Engine:
        if not (self.folder / ONNX_CONFIG).is_file():
            raise SettingsError(
                f"{self.folder.name}: is an exported ONNX model, which gives logits and no layers' states; load the "
                "PyTorch folder that it was exported from"
            )
        with needing_torch():
            from bertvision.serving.torch_model import open_model
            from bertvision.training.device import choose_compute

        return open_model(self.folder, choose_compute("cpu", "float32")).engine

    @property
    def settings_fingerprint(self) -> Settings:
        """Return the hash of the graph."""
        return {"head": self.config.sha256, "precision": "onnx"}

    @property
    def loaded_with(self) -> Settings:
        """Return nothing: it runs on the CPU."""
        return {}

    @property
    def is_on_gpu(self) -> bool:
        """Return that it runs on the CPU."""
        return False

    def write(self, folder: Path, calibration: Calibration, records: Sequence[RunRecord] | None) -> None:
        """Copy the folder's files, card included."""
        if records is not None:
            raise SettingsError("an exported ONNX model is saved as it is; save the PyTorch folder to change its card")
        for path in sorted(self.folder.iterdir()):
            if _own_file(path).is_file():
                shutil.copyfile(path, folder / path.name)


def _own_file(path: Path) -> Path:
    """Refuse a link to a file elsewhere, maybe a secret one; the hub's cache keeps its own as such links."""
    folder = path.parent.resolve()
    snapshot = parse_snapshot(folder)
    allowed = (folder,) if snapshot is None else (folder, snapshot.blobs)
    if path.is_symlink() and path.resolve().parent not in allowed:
        raise FolderError(f"{path}: is a link to a file elsewhere; put the file itself there to save the model")
    return path


def is_onnx(folder: Path) -> bool:
    """Return whether a folder is a model saved as ONNX, which torch cannot run."""
    config = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else None
    return isinstance(config, dict) and config.get("format") == ONNX_FORMAT


def has_graph(folder: Path) -> bool:
    """Return whether onnxruntime can run a folder's model."""
    return (folder / ONNX_CONFIG).is_file() or is_onnx(folder)


def open_onnx(folder: Path) -> ServedModel:
    """Load a model with a graph; refuse a graph that is not the one that was checked."""
    path = folder / CONFIG if is_onnx(folder) else folder / ONNX_CONFIG
    config = validate(OnnxConfig, read_json(path), str(path))
    check_manifest(folder)
    graph = folder / GRAPH
    if not graph.is_file() or sha256_of(graph) != config.sha256:
        raise FolderError(f"{graph}: is missing or not the one that was exported; export the model again")
    session = open_session(graph)
    _check_graph(graph, session, config)
    tokenizer = read_tokenizer(folder)
    assert tokenizer.pad_token_id is not None
    engine = OnnxEngine(folder, config, tokenizer.pad_token_id, session)
    return ServedModel(folder, config, tokenizer, read_calibration(folder, config), engine)


def _check_graph(graph: Path, session: Session, config: OnnxConfig) -> None:
    """Refuse a graph whose inputs or logits are not those of the settings, before anything of their size is made."""
    names, (output, *_) = [each.name for each in session.get_inputs()], session.get_outputs()
    if not set(names) <= set(INPUTS) or output.shape[-1:] != [config.columns]:
        raise FolderError(
            f"{graph}: has the inputs {', '.join(names)} and logits of shape {output.shape}, {CONFIG} says "
            f"{config.columns} columns; export the model again"
        )


def open_session(graph: Path) -> Session:
    """Load a graph for the CPU; refuse one that the exporter could not have written."""
    check_operators(graph)
    import onnxruntime  # takes a while

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors alone
    # Threads that wait for work sleep instead of spinning: on two shared cores a batch took 0.8 of the time.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Weights that are rounded in the file become float32 once, while the graph is loaded, and not for each batch.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    if not has_vnni():
        # x86 CPUs without VNNI add up products with signed weights in 16 bits, which overflow: another model, which may
        # answer nonsense. This takes unsigned ones, with the same sums. onnxruntime would do so with VNNI too, where it
        # takes 1.8 times as long.
        options.add_session_config_entry("session.x64quantprecision", "1")
    with told_as(FolderError, f"{graph}: cannot be run"):
        session: Session = onnxruntime.InferenceSession(str(graph), options, providers=PROVIDERS)
    return session


def has_vnni(cpu_info: Path = CPU_INFO) -> bool:
    """Return whether this CPU is known to add up products of 8 bits in 32."""
    try:
        return "vnni" in cpu_info.read_text()
    except OSError:
        return False


def run_graph(
    session: Session, ids: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_], segments: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Return the logits of padded windows; an encoder without segments has no input for them."""
    given = dict(zip(INPUTS, (ids, mask.astype(np.int64), segments), strict=True))
    with told_as(FolderError, "the graph cannot be run on these texts, export the model again"):
        found = session.run(None, {each.name: given[each.name] for each in session.get_inputs()})
    scores: npt.NDArray[np.float32] = found[0]
    return scores
