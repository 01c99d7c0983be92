"""A tuning alone in one safetensors file: all that differs from the plain encoder, and what it belongs to."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from transformers import PreTrainedModel

from bertvision.errors import EncoderError, FolderError
from bertvision.files import check_file, write_bytes
from bertvision.settings import validate
from bertvision.training.checkpoint import fingerprint_tensors, load_tensors
from bertvision.tuning.blocks import blocks_of, inserted_parameters
from bertvision.tuning.config import TuneConfig
from bertvision.tuning.tune import Tuned, tune
from bertvision.tuning.variants import plain_state, remove_tuning, set_active, trained_state, variant_of, variants_of

ADAPTERS = "adapters.safetensors"  # in an encoder's folder: what `load_encoder` inserts into the plain encoder there
KEY = "bertvision_tuning"  # in the file's metadata, as JSON
SHAPE = ("model_type", "hidden_size", "blocks")  # must be the encoder's own, or nothing fits


def save_adapters(path: Path, model: PreTrainedModel, name: str | None = None) -> None:
    """Write a tuning (the active one unless named) without the encoder: what it inserted, and weights it trained."""
    name = variants_of(model).active if name is None else name
    config = variant_of(model, name).config
    about = {**_shape_of(model), "base": _base_of(model), "tune": config.model_dump(mode="json")}
    tensors = {each: value.contiguous() for each, value in trained_state(model, name).items()}
    write_bytes(check_file(path), save(tensors, metadata={KEY: json.dumps(about)}))


def load_adapters(path: Path, model: PreTrainedModel, name: str = "tuned", *, any_base: bool = False) -> Tuned:
    """Read a tuning into an encoder under a name of its own and let it act: its outputs are those it was saved with.

    The encoder must be the one it was trained on, with the same weights and number format; `any_base` lifts that.
    """
    about = read_about(path)
    _check_encoder(path, model, about, any_base=any_base)
    tuned = tune(model, validate(TuneConfig, about["tune"], str(path)), seed=0, name=name)
    try:
        _fill(path, model, name, load_tensors(path))
    except FolderError:
        remove_tuning(model, name)
        raise
    return tuned


def read_about(path: Path) -> dict[str, Any]:
    """Read what a file says of itself: its encoder's kind, sizes and fingerprint, and the setting."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise FolderError(f"{path}: missing or damaged ({error}); save the tuning again") from None
    if KEY not in metadata:
        raise FolderError(f"{path}: not written by save_adapters; give a file that was")
    about: dict[str, Any] = json.loads(metadata[KEY])
    return about


def _check_encoder(path: Path, model: PreTrainedModel, about: dict[str, Any], *, any_base: bool) -> None:
    here = _shape_of(model)
    for key in SHAPE:
        if about[key] != here[key]:
            raise EncoderError(
                f"{path}: made for an encoder whose {key} is {about[key]}, but this one's is {here[key]}"
            )
    if not any_base and about["base"] != _base_of(model):
        raise EncoderError(
            f"{path}: made for an encoder of the same kind with other weights; "
            "load that one (before it is cast to another number format), or pass any_base=True"
        )


def _fill(path: Path, model: PreTrainedModel, name: str, tensors: dict[str, Tensor]) -> None:
    expected = trained_state(model, name)
    wrong = [each for each in expected.keys() | tensors.keys() if _shape(expected, each) != _shape(tensors, each)]
    if wrong:
        raise FolderError(
            f"{path}: {len(wrong)} weights do not fit its own setting, such as {min(wrong)!r}; save it again"
        )
    for each, param in inserted_parameters(model, name).items():
        param.data.copy_(tensors[each])
    set_active(model, None)
    variant = variant_of(model, name)
    variant.values = {each: tensors[each] for each in variant.values}
    set_active(model, name)


def _shape(tensors: dict[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(tensors[name].shape) if name in tensors else None


def _shape_of(model: PreTrainedModel) -> dict[str, Any]:
    values = (str(model.config.model_type), int(model.config.hidden_size), len(blocks_of(model)))
    return dict(zip(SHAPE, values, strict=True))


def _base_of(model: PreTrainedModel) -> str:
    return fingerprint_tensors(plain_state(model))
