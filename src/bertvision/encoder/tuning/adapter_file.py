"""A tuning alone in one safetensors file: all that differs from the plain encoder, and what it belongs to."""

import json
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor
from transformers import PreTrainedModel

from bertvision.encoder.tuning.blocks import blocks_of, inserted_parameters, plain_parameters
from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.tune import Tuned, tune
from bertvision.encoder.tuning.variants import (
    POOLER,
    Base,
    keep_base,
    plain_state,
    set_active,
    trained_state,
    undone_on_failure,
    variant_of,
    variants_of,
)
from bertvision.errors import EncoderError, FolderError, SettingsError, told_as
from bertvision.files import check_file, write_bytes
from bertvision.settings import Config, validate
from bertvision.training.checkpoint import fingerprint_tensors

ADAPTERS = "adapters.safetensors"  # in an encoder's folder: what `load_encoder` inserts into the plain encoder there
KEY = "bertvision_tuning"  # in the file's metadata, as JSON
SHAPE = ("model_type", "hidden_size", "blocks")  # must be the encoder's own, or nothing fits


class AdapterManifest(Config):
    """What a file says of itself: its encoder's kind, sizes and fingerprints, and the setting."""

    model_type: str
    hidden_size: int
    blocks: int
    tune: TuneConfig
    base: str
    format: Literal[1, 2] = 1  # in 1 `base` is of all weights, in 2 of all but the pooler's
    pooler: str | None = None  # only where its values matter to the tuning


def save_adapters(
    path: Path | str, model: PreTrainedModel, name: str | None = None, *, is_rounded: bool = False
) -> None:
    """Write a tuning (the active one unless named) without the encoder: what it inserted, and weights it trained.

    Where it `is_rounded`, to float16, the file is half as large.
    """
    name = variants_of(model).active if name is None else name
    config, base = variant_of(model, name).config, _base_of(model)
    pooler = base.pooler if _changes_pooler(model, name) else None
    about = AdapterManifest(**_shape_of(model), tune=config, base=base.encoder, format=2, pooler=pooler)
    trained = trained_state(model, name).items()
    tensors = {each: (value.half() if is_rounded else value).contiguous() for each, value in trained}
    write_bytes(check_file(Path(path)), save(tensors, metadata={KEY: json.dumps(about.model_dump(mode="json"))}))


def save_plain(folder: Path | str, model: PreTrainedModel) -> None:
    """Write the plain encoder as `save_pretrained` does, under its plain names, whatever tunings it has."""
    model.save_pretrained(folder, state_dict=plain_state(model))
    for path in Path(folder).glob("*.safetensors"):  # safetensors writes files that nobody else may read
        path.chmod((Path(folder) / "config.json").stat().st_mode)


def load_adapters(path: Path | str, model: PreTrainedModel, name: str = "tuned", *, any_base: bool = False) -> Tuned:
    """Read a tuning into an encoder under a name of its own and let it act: its outputs are those it was saved with.

    The encoder must be the one it was trained on, with the same weights and number format; `any_base` lifts that. After
    an error the encoder is what it was.
    """
    path = Path(path)
    return _insert(path, *_read(path), model, name, any_base=any_base)


def _insert(
    path: Path, about: AdapterManifest, tensors: dict[str, Tensor], model: PreTrainedModel, name: str, *, any_base: bool
) -> Tuned:
    with undone_on_failure(model, name):
        _check_shape(path, model, about)
        if not any_base:
            _check_base(path, model, about)
        tuned = tune(model, about.tune, seed=0, name=name)
        _fill(path, model, name, tensors)
    return tuned


def apply_adapters(path: Path, model: PreTrainedModel) -> None:
    """Let a file's tuning act on the encoder that it was trained on: LoRA becomes a part of the encoder's own weights.

    That needs no peft, costs nothing when the encoder runs, and gives the same bits everywhere: of factors in float16
    every product is a multiple of 2 ** -48, so that float64 adds them up exactly, in whichever order.
    """
    about, tensors = _read(path)
    if not about.tune.is_mergeable:
        _insert(path, about, tensors, model, "tuned", any_base=False)
        return
    _check_shape(path, model, about)
    _check_base(path, model, about)
    model.__dict__.pop("tunings", None)  # the fingerprint of weights that change now
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
    here = base.encoder if about.format == 2 else fingerprint_tensors(plain_state(model))
    if about.base != here:
        raise EncoderError(
            f"{path}: made for an encoder of the same kind with other weights (fingerprint {about.base[:12]}, "
            f"this one's is {here[:12]}): another checkpoint, or weights that were trained, changed by hand or cast to "
            "another number format before the first tuning, there or here; load the encoder as it was there before "
            "its first tuning, or pass any_base=True to use the file with this one"
        )
    if about.pooler not in (None, base.pooler):
        raise EncoderError(
            f"{path}: made for this encoder with another pooler, of which the tuning trains a part; where a checkpoint "
            "has no pooler, transformers makes a random one each time: load the encoder with add_pooling_layer=False, "
            "there and here, or pass any_base=True where nothing reads the pooler"
        )


def _fill(path: Path, model: PreTrainedModel, name: str, tensors: dict[str, Tensor]) -> None:
    expected = trained_state(model, name)
    if wrong := [each for each in expected.keys() | tensors.keys() if _size(expected, each) != _size(tensors, each)]:
        first = min(wrong)
        raise FolderError(
            f"{path}: {len(wrong)} weights do not fit its own setting, such as {first!r} ({_size(tensors, first)} in "
            f"the file, {_size(expected, first)} expected); load it into its own encoder, or save it again"
        )
    for each, param in inserted_parameters(model, name).items():
        param.data.copy_(tensors[each])
    set_active(model, None)
    variant = variant_of(model, name)
    variant.values = {each: tensors[each].to(value.dtype) for each, value in variant.values.items()}
    set_active(model, name)


def _size(tensors: dict[str, Tensor], name: str) -> str:
    return "x".join(map(str, tensors[name].shape)) if name in tensors else "none"


def _shape_of(model: PreTrainedModel) -> dict[str, Any]:
    values = (str(model.config.model_type), int(model.config.hidden_size), len(blocks_of(model)))
    return dict(zip(SHAPE, values, strict=True))


def _base_of(model: PreTrainedModel) -> Base:
    base = keep_base(model)
    if base is None:
        raise EncoderError("the encoder's weights have no values yet (device meta); load them first")
    return base


def _changes_pooler(model: PreTrainedModel, name: str | None) -> bool:
    """Return whether a tuning trains a part of the pooler, which needs the rest of it; all of it is in the file."""
    pooler = {each for each in plain_parameters(model) if each.startswith(POOLER)}
    trained = pooler & variant_of(model, name).values.keys()
    return bool(trained) and trained != pooler
