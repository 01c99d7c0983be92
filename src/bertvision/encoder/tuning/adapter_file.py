"""A tuning alone in one safetensors file: all that differs from the plain encoder, and what it belongs to."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor
from transformers import PreTrainedModel

from bertvision.encoder.tuning.blocks import blocks_of, inserted_parameters, plain_parameters
from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.tune import (
    POOLER,
    Base,
    Tuned,
    base_of,
    plain_state,
    trained_state,
    tune,
    tuning_of,
    undone_on_failure,
)
from bertvision.errors import EncoderError, FolderError, SettingsError, told_as
from bertvision.files import check_file, write_bytes
from bertvision.settings import Config, validate

ADAPTERS = "adapters.safetensors"  # in an encoder's folder: what `load_encoder` inserts into the plain encoder there
KEY = "bertvision_tuning"  # in the file's metadata, as JSON
SHAPE = ("model_type", "hidden_size", "blocks")  # must be the encoder's own, or nothing fits


class AdapterManifest(Config):
    """What a file says of itself: its encoder's kind, sizes and fingerprints, and the setting."""

    model_type: str
    hidden_size: int
    blocks: int
    tune: TuneConfig
    base: str  # of all weights but the pooler's
    format: Literal[2]
    pooler: str | None = None  # only where its values matter to the tuning


def save_adapters(path: Path | str, model: PreTrainedModel, *, is_rounded: bool = False) -> None:
    """Write a tuning without the encoder: what it inserted, and weights it trained.

    Where it `is_rounded`, to float16, the file is half as large.
    """
    trained, tuning, base = trained_state(model), tuning_of(model), _base_of(model)
    assert tuning is not None  # else it has no trained state
    pooler = base.pooler if _changes_pooler(model, tuning.plain) else None
    about = AdapterManifest(**_shape_of(model), tune=tuning.config, base=base.encoder, format=2, pooler=pooler)
    tensors = {each: (value.half() if is_rounded else value).contiguous() for each, value in trained.items()}
    write_bytes(check_file(Path(path)), save(tensors, metadata={KEY: json.dumps(about.model_dump(mode="json"))}))


def save_plain(folder: Path | str, model: PreTrainedModel) -> None:
    """Write the plain encoder as `save_pretrained` does, under its plain names, also where it is tuned."""
    model.save_pretrained(folder, state_dict=plain_state(model))
    for path in Path(folder).glob("*.safetensors"):  # safetensors writes files that nobody else may read
        path.chmod((Path(folder) / "config.json").stat().st_mode)


def load_adapters(path: Path | str, model: PreTrainedModel, *, any_base: bool = False) -> Tuned:
    """Read a tuning into a plain encoder: its outputs are those it was saved with.

    The encoder must be the one it was trained on, with the same weights and number format; `any_base` lifts that. After
    an error the encoder is what it was.
    """
    path = Path(path)
    return _insert(path, *_read(path), model, any_base=any_base)


def _insert(
    path: Path, about: AdapterManifest, tensors: dict[str, Tensor], model: PreTrainedModel, *, any_base: bool
) -> Tuned:
    _check_shape(path, model, about)
    if not any_base:
        _check_base(path, model, about)
    with undone_on_failure(model):
        tuned = tune(model, about.tune, seed=0)
        _fill(path, model, tensors)
    return tuned


def apply_adapters(path: Path, model: PreTrainedModel) -> None:
    """Let a file's tuning act on the encoder that it was trained on: LoRA becomes a part of the encoder's own weights.

    That needs no peft, costs nothing when the encoder runs, and gives the same bits everywhere: of factors in float16
    every product is a multiple of 2 ** -48, so that float64 adds them up exactly, in whichever order.
    """
    about, tensors = _read(path)
    if not about.tune.is_mergeable:
        _insert(path, about, tensors, model, any_base=False)
        return
    _check_shape(path, model, about)
    _check_base(path, model, about)
    own = plain_parameters(model)
    with torch.no_grad(), told_as(FolderError, f"{path}: does not fit its own setting; save the tuning again"):
        for name, value in tensors.items():
            layer, is_first_factor, _ = name.partition(".lora_A.")
            if is_first_factor:
                low, high = (tensors[f"{layer}.lora_{factor}.weight"].half().double() for factor in "AB")
                own[f"{layer}.weight"].copy_(own[f"{layer}.weight"].double() + high @ low)
            elif ".lora_B." not in name:
                own[name].copy_(value)


def _read(path: Path) -> tuple[AdapterManifest, dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        tensors = load_file(path)
    except OSError as error:
        raise FolderError(f"{path}: cannot be read ({error}); give a file that save_adapters wrote") from None
    except SafetensorError as error:
        raise FolderError(
            f"{path}: damaged, or no safetensors file ({error}); give one that save_adapters wrote, or save it again"
        ) from None
    if KEY not in metadata:
        raise FolderError(f"{path}: holds tensors but no tuning's description; give a file that save_adapters wrote")
    try:
        return validate(AdapterManifest, json.loads(metadata[KEY]), "its description"), tensors
    except (ValueError, SettingsError) as error:
        raise FolderError(
            f"{path}: not as save_adapters writes it ({error}); save the tuning again, or update bertvision "
            "where a later version wrote the file"
        ) from None


def _check_shape(path: Path, model: PreTrainedModel, about: AdapterManifest) -> None:
    for key, here in _shape_of(model).items():
        if (there := getattr(about, key)) != here:
            raise EncoderError(
                f"{path}: made for an encoder whose {key} is {there}, but this one's is {here}; "
                "load it into the encoder that it was trained on"
            )


def _check_base(path: Path, model: PreTrainedModel, about: AdapterManifest) -> None:
    base = _base_of(model)
    if about.base != base.encoder:
        raise EncoderError(
            f"{path}: made for an encoder of the same kind with other weights (fingerprint {about.base[:12]}, "
            f"this one's is {base.encoder[:12]}): another checkpoint, or weights that were trained, changed by hand or "
            "cast to another number format before the tuning, there or here; load the encoder as it was there before "
            "its tuning, or pass any_base=True to use the file with this one"
        )
    if about.pooler not in (None, base.pooler):
        raise EncoderError(
            f"{path}: made for this encoder with another pooler, of which the tuning trains a part; where a checkpoint "
            "has no pooler, transformers makes a random one each time: load the encoder with add_pooling_layer=False, "
            "there and here, or pass any_base=True where nothing reads the pooler"
        )


def _fill(path: Path, model: PreTrainedModel, tensors: dict[str, Tensor]) -> None:
    expected = trained_state(model)
    if wrong := [each for each in expected.keys() | tensors.keys() if _size(expected, each) != _size(tensors, each)]:
        first = min(wrong)
        raise FolderError(
            f"{path}: {len(wrong)} weights do not fit its own setting, such as {first!r} ({_size(tensors, first)} in "
            f"the file, {_size(expected, first)} expected); load it into its own encoder, or save it again"
        )
    weights = {**plain_parameters(model), **inserted_parameters(model)}
    for each, value in tensors.items():
        weights[each].data.copy_(value)


def _size(tensors: dict[str, Tensor], name: str) -> str:
    return "x".join(map(str, tensors[name].shape)) if name in tensors else "none"


def _shape_of(model: PreTrainedModel) -> dict[str, Any]:
    values = (str(model.config.model_type), int(model.config.hidden_size), len(blocks_of(model)))
    return dict(zip(SHAPE, values, strict=True))


def _base_of(model: PreTrainedModel) -> Base:
    base = base_of(model)
    if base is None:
        raise EncoderError("the encoder's weights have no values yet (device meta); load them first")
    return base


def _changes_pooler(model: PreTrainedModel, names: Collection[str]) -> bool:
    """Return whether a tuning trains a part of the pooler, which needs the rest of it; all of it is in the file."""
    pooler = {each for each in plain_parameters(model) if each.startswith(POOLER)}
    trained = pooler.intersection(names)
    return bool(trained) and trained != pooler
