"""Writes a model as a folder of changes: what differs from the encoder that it was tuned from, rounded to float16.

The models that ship are such folders; `bertvision.load` and `load_encoder` read them.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from bertvision.encoder.folder import CHANGES, CHANGES_FILE, ChangesConfig, lay_over
from bertvision.encoder.load import load_encoder
from bertvision.encoder.tuning.adapter_file import ADAPTERS, apply_adapters, load_adapters, save_adapters
from bertvision.encoder.tuning.tune import tuning_of
from bertvision.errors import EncoderError
from bertvision.files import given_folder, write_json, write_text
from bertvision.hub import CARD
from bertvision.manifest import write_manifest
from bertvision.model_config import CALIBRATION
from bertvision.model_folder import LORA, Model, load_model, save_head
from bertvision.serving.reader import Reader
from bertvision.serving.torch_model import saved_config, torch_engine
from bertvision.training.checkpoint import fingerprint, save_tensors


def save_as_changes(reader: Reader, folder: Path, base: str) -> Path:
    """Write a reader's model into a new folder, with all that `save_pretrained` writes but a whole encoder.

    `base` is an encoder that whoever loads the folder has or gets: `default`, `base`, or a hub id.
    """
    engine, calibration = torch_engine(reader.served), reader.served.calibration
    model = load_model(engine.folder, allow_outside=engine.allow_outside)
    with given_folder(folder) as beside:
        _write(beside, replace(model, config=saved_config(model.config, calibration)), base)
        write_json(beside / CALIBRATION, calibration.model_dump(mode="json"))
        write_text(beside / CARD, engine.card(calibration))
        write_manifest(beside)
    return folder


def _write(folder: Path, model: Model, base: str) -> None:
    """Write changes and head; adapters stand in a file of their own, and so does LoRA that a run has merged."""
    if Path(base).exists():
        raise EncoderError(
            f"{base}: is a folder of this machine; name an encoder that others have: default, base, or a hub id"
        )
    start = load_encoder(base)
    if start.tokenizer.get_vocab() != model.encoder.tokenizer.get_vocab():
        raise EncoderError(f"{base}: has other word pieces than this model; name the encoder that it was tuned from")
    changes: dict[str, Tensor] = {}
    if (lora := Path(model.encoder.name) / LORA).is_file():
        load_adapters(lora, start.model)
        save_adapters(folder / ADAPTERS, start.model, is_rounded=True)
        start = load_encoder(base)
        apply_adapters(folder / ADAPTERS, start.model)
    elif tuning_of(model.encoder.model) is not None:
        save_adapters(folder / ADAPTERS, model.encoder.model, is_rounded=True)
        load_adapters(folder / ADAPTERS, start.model, any_base=True)
        save_adapters(folder / ADAPTERS, start.model, is_rounded=True)  # with the fingerprint of what it is for
        changes = changes_between(model.encoder.model, start.model)
    else:
        changes = changes_between(model.encoder.model, start.model)
    save_tensors(folder / CHANGES, changes)
    lay_over(start.model, changes, base)
    weights = fingerprint(start.model)
    own = {"encoder": ".", "encoder_is_path": True, "encoder_fingerprint": weights}
    save_head(folder, model.head, model.config.model_copy(update=own))
    write_json(folder / CHANGES_FILE, ChangesConfig(base=base, fingerprint=weights).model_dump(mode="json"))


def changes_between(model: PreTrainedModel, base: PreTrainedModel) -> dict[str, Tensor]:
    """Return the weights that differ from another encoder's of the same shape, rounded to float16."""
    tuned, start = model.state_dict(), base.state_dict()
    if odd := [name for name in tuned.keys() | start.keys() if _shape(tuned, name) != _shape(start, name)]:
        raise EncoderError(f"{len(odd)} weights differ in shape from those of the other encoder, such as {min(odd)!r}")
    rounded = {name: value.half() for name, value in tuned.items()}
    changes = {name: value for name, value in rounded.items() if not torch.equal(value, start[name].half())}
    if wild := [name for name, value in changes.items() if not torch.isfinite(value).all()]:
        raise EncoderError(f"{wild[0]!r} holds numbers beyond float16; save the whole model instead")
    return changes


def _shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(tensors[name].shape) if name in tensors else None
