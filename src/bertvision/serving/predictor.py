"""`load`: a folder or hub id -> something that takes text and gives answers."""

import re
from collections.abc import Callable
from pathlib import Path

from bertvision.errors import FolderError, SettingsError
from bertvision.serving.classifier import Classifier
from bertvision.serving.interface import Served
from bertvision.serving.onnx_model import is_onnx, open_onnx
from bertvision.serving.reader import Reader
from bertvision.serving.tagger import Tagger
from bertvision.settings import DEFAULT, Precision
from bertvision.stages.use_config import CONFIG

Predictor = Reader | Classifier | Tagger
PREDICTORS: dict[str, Callable[[Served], Predictor]] = {"reader": Reader, "classifier": Classifier, "tagger": Tagger}
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
FILES = ["*.json", "*.safetensors", "*.onnx", "*.txt", "*.model", "README.md"]  # nothing that could be unpickled or run


def load(model: str | Path, *, device: str = "auto", precision: Precision = "auto") -> Predictor:
    """Load a model: `default`, a MODEL_DIR (OUT/heads/FRACTION/HEAD, OUT/encoder/FRACTION, a saved one) or a hub id.

    A folder that `bertvision export` wrote runs on the CPU with onnxruntime; torch is not imported for it.
    Gives a `Reader` for questions, a `Tagger` for tags of words, and a `Classifier` for everything else.
    """
    served = _open(_find(model), device, precision)
    return PREDICTORS[served.kind.predictor](served)


def _open(folder: Path, device: str, precision: Precision) -> Served:
    if is_onnx(folder):
        if device not in ("auto", "cpu") or precision == "bf16":
            raise SettingsError(
                f"{folder}: is an exported ONNX model, which runs on the CPU; leave device and precision"
            )
        return open_onnx(folder)
    from bertvision.serving.served import open_model  # torch, which an exported model does not need
    from bertvision.training.device import choose_compute

    return open_model(folder, choose_compute(device, precision))


def _find(model: str | Path) -> Path:
    if str(model) == DEFAULT:
        from bertvision.encoder.load import shipped_model  # torch again

        return shipped_model()
    if (Path(model) / CONFIG).is_file() or Path(model).exists():
        return Path(model)
    if isinstance(model, str) and HUB_ID.fullmatch(model):
        return _download(model)
    raise FolderError(f"{model}: no such folder; give OUT/heads/FRACTION/HEAD, OUT/encoder/FRACTION or a hub id")


def _download(hub_id: str) -> Path:
    from huggingface_hub import snapshot_download  # comes with transformers; not needed for folders

    try:
        return Path(snapshot_download(hub_id, allow_patterns=FILES))
    except (OSError, ValueError) as error:  # all of the hub's errors are one of these
        reason = " ".join(str(error).split())[:200]
        raise FolderError(f"{hub_id}: no such folder, and not to be had from the hub ({reason})") from None
