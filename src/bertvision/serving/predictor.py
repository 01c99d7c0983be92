"""`load`: a folder or hub id -> something that takes text and gives answers."""

import re
from pathlib import Path
from typing import NoReturn

from bertvision.errors import FolderError
from bertvision.serving.classifier import Classifier
from bertvision.serving.reader import Reader
from bertvision.serving.served import open_model
from bertvision.serving.tagger import Tagger
from bertvision.stages.model_folder import CONFIG
from bertvision.training.device import Precision, choose_compute

Predictor = Reader | Classifier | Tagger
DEFAULT = "default"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "README.md"]  # nothing that could be unpickled or run


def load(model: str | Path, *, device: str = "auto", precision: Precision = "auto") -> Predictor:
    """Load a model: a MODEL_DIR (OUT/heads/FRACTION/HEAD, OUT/encoder/FRACTION, a saved one) or a hub id.

    Gives a `Reader` for questions, a `Tagger` for tags of words, and a `Classifier` for everything else.
    """
    served = open_model(_find(model), choose_compute(device, precision))
    match served.kind:
        case "span":
            return Reader(served)
        case "tags":
            return Tagger(served)
        case _:
            return Classifier(served)


def _find(model: str | Path) -> Path:
    if str(model) == DEFAULT:
        _refuse_default()
    if (Path(model) / CONFIG).is_file() or Path(model).exists():
        return Path(model)
    if isinstance(model, str) and HUB_ID.fullmatch(model):
        return _download(model)
    raise FolderError(f"{model}: no such folder; give OUT/heads/FRACTION/HEAD, OUT/encoder/FRACTION or a hub id")


def _refuse_default() -> NoReturn:
    """Say that there is no default model; the place to put one when it ships."""
    raise FolderError(
        "no default model ships with this version yet; make one with `bertvision quickstart`, then give "
        "runs/quickstart/heads/1/adapter_386_shared_skip"
    )


def _download(hub_id: str) -> Path:
    from huggingface_hub import snapshot_download  # comes with transformers; not needed for folders

    try:
        return Path(snapshot_download(hub_id, allow_patterns=FILES))
    except (OSError, ValueError) as error:  # all of the hub's errors are one of these
        reason = " ".join(str(error).split())[:200]
        raise FolderError(f"{hub_id}: no such folder, and not to be had from the hub ({reason})") from None
