"""`load`: a folder or hub id -> something that takes text and gives answers."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bertvision.errors import FolderError, SettingsError, needing_torch, reason_of
from bertvision.hub import hub_problem
from bertvision.model_config import CONFIG
from bertvision.serving.classifier import Classifier
from bertvision.serving.onnx_model import is_onnx, open_onnx
from bertvision.serving.reader import Reader
from bertvision.serving.served import Served
from bertvision.serving.tagger import Tagger
from bertvision.settings import DEFAULT, Precision, check_precision

Predictor = Reader | Classifier | Tagger
PREDICTORS: dict[str, Callable[[Served], Predictor]] = {"reader": Reader, "classifier": Classifier, "tagger": Tagger}
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
FILES = ["*.json", "*.safetensors", "*.onnx", "*.txt", "*.model", "README.md"]  # nothing that could be unpickled or run


@needing_torch()
def load(
    model: str | Path,
    *,
    device: str = "auto",
    precision: Precision = "auto",
    pooler: Any = None,  # noqa: ANN401 (an nn.Module; torch is not imported for ONNX)
) -> Predictor:
    """Load a model: `default`, a MODEL_DIR (OUT/heads/FRACTION/HEAD, OUT/encoder/FRACTION, a saved one) or a hub id.

    A folder that `bertvision export` wrote runs on the CPU with onnxruntime; torch is not imported for it.
    A head that was trained with a pooler of your own needs that `pooler`, a module of the same class.
    Returns a `Reader` for questions, a `Tagger` for tags of words, and a `Classifier` for everything else.
    """
    check_precision(precision)  # also where nothing is computed with it
    served = _open(_find(model), device, precision, pooler)
    return PREDICTORS[served.kind.predictor](served)


def _open(folder: Path, device: str, precision: Precision, pooler: Any) -> Served:  # noqa: ANN401 (an nn.Module)
    if is_onnx(folder):
        if device not in ("auto", "cpu") or precision == "bf16":
            raise SettingsError(
                f"{folder}: is an exported ONNX model, which runs on the CPU; leave device and precision"
            )
        return open_onnx(folder)
    from bertvision.serving.torch_model import open_model  # torch, which an exported model does not need
    from bertvision.training.device import choose_compute

    return open_model(folder, choose_compute(device, precision), pooler)


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

    problem = hub_problem()
    try:
        return Path(snapshot_download(hub_id, allow_patterns=FILES, local_files_only=problem is not None))
    except (OSError, ValueError) as error:  # all of the hub's errors are one of these
        reason = f"never downloaded, and {problem}" if problem else f"not to be had from the hub ({reason_of(error)})"
        raise FolderError(f"{hub_id}: no such folder, {reason}; give `default` or a MODEL_DIR") from None
