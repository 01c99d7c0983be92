"""An encoder as what differs from another one: changed weights in float16, and of which one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from bertvision.errors import EncoderError, FolderError
from bertvision.files import read_json, write_json
from bertvision.manifest import check_hashes, check_manifest
from bertvision.settings import Config, validate
from bertvision.training.checkpoint import fingerprint, load_tensors, save_tensors

CHANGES, MANIFEST = "changes.safetensors", "changes.json"


class ChangesConfig(Config):
    """What a folder's changes belong to, and what they make of it."""

    format: Literal[1] = 1
    base: str  # the encoder that they are laid over: `default`, `base`, or a hub id
    fingerprint: str  # of the whole encoder once they are
    sha256: dict[str, str] = {}  # of its files of weights, where an older version saved it without a manifest


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


def lay_over(model: PreTrainedModel, changes: Mapping[str, Tensor], origin: str) -> None:
    """Put changed weights in the place of an encoder's own."""
    own = model.state_dict()
    if odd := [name for name in changes if _shape(changes, name) != _shape(own, name)]:
        raise FolderError(
            f"{origin}: {len(odd)} weights do not fit the encoder, such as {min(odd)!r}; install it again"
        )
    for name, value in changes.items():
        own[name].copy_(value)


def save_changes(folder: Path, changes: Mapping[str, Tensor]) -> None:
    """Write changed weights into a folder; `sign_changes` makes it whole."""
    save_tensors(folder / CHANGES, changes)


def sign_changes(folder: Path, base: str, model: PreTrainedModel) -> None:
    """Write down which encoder the changes belong to, and what it becomes."""
    about = ChangesConfig(base=base, fingerprint=fingerprint(model))
    write_json(folder / MANIFEST, about.model_dump(mode="json", exclude={"sha256"}))


def read_manifest(folder: Path) -> ChangesConfig:
    """Read what a folder's changes belong to, and check the bytes of its weights."""
    about = validate(ChangesConfig, read_json(folder / MANIFEST), str(folder / MANIFEST))
    for name in about.sha256:
        if Path(name).name != name:
            raise FolderError(f"{folder / MANIFEST}: names {name[:80]!r}, which is no file of the folder; get it again")
    check_manifest(folder)
    check_hashes(folder, about.sha256)
    return about


def apply_changes(folder: Path, about: ChangesConfig, model: PreTrainedModel) -> None:
    """Turn the encoder that a folder's changes belong to into the one that was saved."""
    lay_over(model, load_tensors(folder / CHANGES), str(folder / CHANGES))
    if fingerprint(model) != about.fingerprint:
        raise FolderError(f"{folder}: {about.base} is not the encoder that these changes were made of; get that one")


def _shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(tensors[name].shape) if name in tensors else None
