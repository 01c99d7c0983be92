"""`load`: a folder or hub id -> something that takes text and gives answers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bertvision.errors import FolderError, SettingsError, needing_torch
from bertvision.hub import find_model_folder
from bertvision.manifest import check_links
from bertvision.model_config import SHIPPED, best_model, shipped_model
from bertvision.serving.classifier import Classifier
from bertvision.serving.model import ServedModel
from bertvision.serving.onnx_model import has_graph, is_onnx, open_onnx
from bertvision.serving.reader import Reader
from bertvision.serving.tagger import Tagger
from bertvision.settings import Precision, Settings, check_precision, suggest

EXPECTED = (
    "; give `default` or `base`, OUT of a run, OUT/heads/FRACTION/HEAD, OUT/encoder/FRACTION, a checkpoint or a hub id"
)
Predictor = Reader | Classifier | Tagger
PREDICTORS: dict[str, Callable[[ServedModel], Predictor]] = {
    "reader": Reader,
    "classifier": Classifier,
    "tagger": Tagger,
}


def load(
    model: str | Path,
    *,
    device: str = "auto",
    precision: Precision = "auto",
    pooler: Any = None,  # noqa: ANN401 (an nn.Module; torch is not imported for ONNX)
    allow_outside: bool = False,
) -> Predictor:
    """Load a model: `default`, a MODEL_DIR (OUT/heads/FRACTION/HEAD, OUT/encoder/FRACTION, a saved one) or a hub id.

    A checkpoint that transformers fine-tuned for question answering or for the classification of texts or tokens is
    loaded too: its output layer is the head. Until `bertvision calibrate` fits its null threshold, that is 0.
    A folder that `bertvision save` wrote as ONNX runs on the CPU with onnxruntime; torch is not imported for it. Nor
    is it for `default`, until a GPU (`cuda`) or `bf16` is asked for.
    A head that was trained with a pooler of your own needs that `pooler`, a module of the same class.
    Nothing in the folder is run. It may lead to itself, to the encoders of its run and to `default`; only with
    `allow_outside` also to another path or a hub id.
    Returns a `Reader` for questions, a `Tagger` for tags of words, and a `Classifier` for everything else.
    """
    served = open_served(model, device, precision, pooler, allow_outside=allow_outside)
    return PREDICTORS[served.kind.predictor](served)


def load_again(folder: str, how: Settings) -> Predictor:
    """Load what was pickled, from where it lay."""
    return load(folder, **how)


@needing_torch()
def open_served(
    model: str | Path,
    device: str,
    precision: Precision,
    pooler: Any = None,  # noqa: ANN401 (an nn.Module)
    *,
    allow_outside: bool,
) -> ServedModel:
    """Load what `load` asks: a model that torch runs, or an exported one."""
    check_precision(precision)  # also where nothing is computed with it
    folder = _find(model)
    if not allow_outside and folder.is_dir():
        check_links(folder)
    wants_torch = device not in ("auto", "cpu") or precision == "bf16" or pooler is not None
    if is_onnx(folder) and wants_torch:
        raise SettingsError(f"{folder}: is an exported ONNX model, which runs on the CPU; leave device and precision")
    if has_graph(folder) and not wants_torch:
        return open_onnx(folder)
    from bertvision.serving.torch_model import open_model  # torch, which an exported model does not need
    from bertvision.training.device import choose_compute

    return open_model(folder, choose_compute(device, precision), pooler, allow_outside=allow_outside)


def _find(model: str | Path) -> Path:
    if str(model) in SHIPPED:
        return shipped_model(str(model))
    folder = best_model(find_model_folder(model))
    if not folder.exists():
        hint = suggest(folder.name, [place.name for place in folder.parent.glob("*")])
        raise FolderError(f"{model}: no such folder{hint or EXPECTED}")
    return folder
