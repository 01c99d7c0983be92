"""MODEL_DIR: a head's weights, its config, and which encoder it belongs to. An encoder's folder holds its own head.

A folder of changes holds, in the place of its encoder, what differs from another one.
"""

import math
import os
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field
from torch import nn

from bertvision.encoder.encode import shape_of_states
from bertvision.encoder.folder import read_shapes
from bertvision.encoder.load import KNOWN, Encoder, load_encoder, quiet_transformers
from bertvision.encoder.tuning.adapter_file import ADAPTERS, save_adapters, save_plain
from bertvision.encoder.tuning.tune import merge_tuning, tuning_of
from bertvision.errors import FolderError, SettingsError, told_as
from bertvision.files import read_json, write_json
from bertvision.heads.build import build_head, pooling_of
from bertvision.heads.checkpoint_head import answers_for, has_output_layer, read_output_layer, windows_for
from bertvision.heads.config import HeadConfig
from bertvision.heads.head import Head
from bertvision.heads.poolers.config import OwnPoolerConfig
from bertvision.hub import find_model_folder
from bertvision.manifest import OUTSIDE, check_links, check_manifest
from bertvision.model_config import CONFIG, ONNX_FORMAT, SHIPPED, Pooling, UseConfig, best_model, shipped_model
from bertvision.run_folder import is_inside
from bertvision.settings import Settings, suggest, validate
from bertvision.shapes import StackShape
from bertvision.tasks import TASKS
from bertvision.training.checkpoint import fingerprint, load_weights, save_weights
from bertvision.training.objective import Objective, objective_of

EXPECTED = "; give OUT of a run, OUT/heads/<fraction>/<head> or OUT/encoder/<fraction>"
WEIGHTS = "head.safetensors"
LORA = "lora.safetensors"  # the tuning alone, of an encoder that has it merged into its weights


class ModelConfig(UseConfig):
    """All that is needed to use a head again."""

    format: Literal[1] = 1
    head: HeadConfig
    layers: int = Field(ge=1, le=10_000)
    state_layers: tuple[int, ...] | None = None  # which of the encoder's states it reads; None: all
    hidden: int = Field(ge=1)
    pooling: Pooling = "first"  # which one state per layer it reads, where it reads one for a row
    encoder: str  # a hub id, `default`, or a path, relative to this folder where it is of the same run
    encoder_is_path: bool

    @property
    def objective(self) -> Objective:
        """Return what it gives for each window."""
        return objective_of(TASKS[self.task].kind, self.labels)


@dataclass(frozen=True)
class Model:
    """An encoder with one head on it."""

    config: ModelConfig
    encoder: Encoder
    head: Head


def save_head(folder: Path, head: Head, config: ModelConfig) -> None:
    """Write a head into a MODEL_DIR."""
    save_weights(folder / WEIGHTS, head)
    write_json(folder / CONFIG, config.model_dump(mode="json"))


def save_encoder(folder: Path, encoder: Encoder, output: Head, config: ModelConfig) -> None:
    """Write an encoder as Hugging Face's loaders expect it, with its output layer beside it.

    Adapters and parasites stand in a file of their own beside the plain encoder; `load_encoder` inserts them again.
    """
    with quiet_transformers():
        save_plain(folder, encoder.model)
        encoder.tokenizer.save_pretrained(folder)
    if tuning_of(encoder.model) is not None:
        save_adapters(folder / ADAPTERS, encoder.model)
    save_head(folder, output, config)


def as_saved(encoder: Encoder) -> Encoder:
    """Return the encoder that a folder is to hold: a copy with LoRA merged into its weights, or else the very same."""
    tuning = tuning_of(encoder.model)
    if tuning is None or not tuning.config.is_mergeable:
        return encoder
    merged = replace(encoder, model=deepcopy(encoder.model))
    merge_tuning(merged.model)
    return merged


def load_model(folder: Path, pooler: nn.Module | None = None, *, allow_outside: bool = False) -> Model:
    """Load a MODEL_DIR, the one called `default`, or a checkpoint that transformers fine-tuned, with its encoder.

    An encoder whose weights are not the ones that the head was trained on is refused. A head that was trained with a
    pooler of somebody's own needs that `pooler`: a module of the same class, whatever its weights. An encoder that lies
    neither in the folder nor in its run, and is not `default`, is loaded only with `allow_outside`.
    """
    folder = find_model(folder)
    if not allow_outside and folder.is_dir():
        check_links(folder)
    if is_checkpoint(folder):
        return _load_checkpoint(folder, pooler, allow_outside)
    config = _with_pooler(read_model_config(folder), pooler)
    _check_head(folder, config)
    place = _encoder_place(folder, config, allow_outside)
    encoder = load_encoder(place, allow_outside=allow_outside)
    if fingerprint(encoder.model) != config.encoder_fingerprint:
        raise FolderError(
            f"{folder}: the encoder {place} is not the one this head was trained on; train the head again"
        )
    _check_fit(folder, config, encoder)
    return Model(config, encoder, load_head(folder, config))


def is_checkpoint(folder: Path) -> bool:
    """Return whether a folder is no MODEL_DIR but a checkpoint of transformers with an output layer."""
    return not (folder / CONFIG).is_file() and has_output_layer(folder)


def _load_checkpoint(folder: Path, pooler: nn.Module | None, allow_outside: bool) -> Model:
    """Load a checkpoint of transformers with its output layer as the head."""
    encoder = load_encoder(str(folder), allow_outside=allow_outside)
    output = read_output_layer(folder, encoder)
    objective = objective_of(TASKS[output.task].kind, output.labels)
    shape = shape_of_states(encoder, pooling=pooling_of(output.head, objective, output.pooling))
    config = ModelConfig(
        head=output.head,
        layers=shape.layers,
        state_layers=output.state_layers,
        hidden=shape.hidden,
        pooling=output.pooling,
        encoder=".",
        encoder_is_path=True,
        encoder_fingerprint=fingerprint(encoder.model),
        task=output.task,
        labels=output.labels,
        text_counts=(1, 2) if objective.per == "row" else None,  # a checkpoint does not say which
        windows=windows_for(output.task, encoder),
        answers=answers_for(folder, output.task),
    )
    config = _with_pooler(config, pooler)
    head = build_head(config.head, shape, objective, config.pooling)
    with told_as(FolderError, f"{folder}: its output layer does not fit its encoder"):
        head.load_state_dict(output.weights)
    head.layers = config.state_layers
    return Model(config, encoder, head)


def _check_fit(folder: Path, config: ModelConfig, encoder: Encoder) -> None:
    """Refuse a head that reads other states than its encoder gives, which would fail with the first text."""
    pooling = pooling_of(config.head, config.objective, config.pooling)
    given = shape_of_states(encoder, pooling=pooling)
    own = range(given.layers) if config.state_layers is None else config.state_layers
    # An encoder's own output layer is made for all states, of which it reads one; other heads for those that they read.
    fits = config.layers in (given.layers, len(own)) and len(own) <= given.layers
    fits = fits and all(0 <= place < given.layers for place in own)
    if not fits or config.hidden != given.hidden:
        raise FolderError(
            f"{folder / CONFIG}: its head reads {config.layers} states of width {config.hidden}, its encoder gives "
            f"{given.layers} of {given.hidden}; get both again"
        )


def _encoder_place(folder: Path, config: ModelConfig, allow_outside: bool) -> str:
    """Return where a model's encoder lies, or its name; refuse a place that the model may not lead to."""
    if not config.encoder_is_path:
        if config.encoder not in KNOWN and not allow_outside:
            raise FolderError(f"{folder / CONFIG}: names the encoder {config.encoder[:200]!r}, {OUTSIDE}")
        return config.encoder
    place = Path(os.path.normpath(folder.resolve() / config.encoder))
    if not allow_outside and not is_inside(place, folder):
        raise FolderError(f"{folder / CONFIG}: names the encoder {config.encoder[:200]!r}, {OUTSIDE}")
    if not place.is_dir():
        raise FolderError(f"{folder}: its encoder {place} is gone; put it back, or fix `encoder` in {folder / CONFIG}")
    return str(place)


def _with_pooler(config: ModelConfig, pooler: nn.Module | None) -> ModelConfig:
    if pooler is None:
        return config
    if not isinstance(config.head.pooler, OwnPoolerConfig):
        raise SettingsError(f"head {config.head.name!r} has its pooler from the catalog; leave `pooler` out")
    own = config.head.pooler.model_copy(update={"module": pooler})
    return config.model_copy(update={"head": config.head.model_copy(update={"pooler": own})})


def load_head(folder: Path, config: ModelConfig) -> Head:
    """Load a MODEL_DIR's head alone."""
    _check_head(folder, config)
    check_manifest(folder, [WEIGHTS])
    head = build_head(config.head, StackShape(config.layers, config.hidden), config.objective, config.pooling)
    load_weights(folder / WEIGHTS, head)
    head.layers = config.state_layers
    return head


def _check_head(folder: Path, config: ModelConfig) -> None:
    """Refuse a head whose sizes are not those of its weights, before anything of these sizes is made."""
    path = folder / WEIGHTS
    with told_as(FolderError, f"{path}: damaged or missing"):
        shapes = read_shapes(path)
    numbers = sum(map(math.prod, shapes.values()))
    given = {"layers": config.layers, "hidden": config.hidden, **_sizes_in(config.head.model_dump(mode="json"))}
    for key, size in given.items():
        if size > numbers:
            raise FolderError(f"{folder / CONFIG}: says {key}: {str(size)[:20]}, {WEIGHTS} holds {numbers:,} numbers")
    if isinstance(config.head.pooler, OwnPoolerConfig):
        return  # its sizes are its own; `load_weights` compares them
    with told_as(FolderError, f"{folder / CONFIG}: describes no head"), torch.device("meta"):
        head = build_head(config.head, StackShape(config.layers, config.hidden), config.objective, config.pooling)
    expected = {name: tuple(tensor.shape) for name, tensor in head.state_dict().items()}
    if odd := [name for name in expected.keys() | shapes.keys() if expected.get(name) != shapes.get(name)]:
        first = min(odd)
        raise FolderError(
            f"{path}: weights of another model ({first!r} is {shapes.get(first)}, {CONFIG} describes "
            f"{expected.get(first)}); get both again"
        )


def _sizes_in(settings: Settings) -> dict[str, int]:
    """Return the whole numbers of settings by key, whatever they stand in."""
    found: dict[str, int] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            found |= _sizes_in(value)
        elif isinstance(value, int):
            found[key] = value
    return found


def read_model_config(folder: Path) -> ModelConfig:
    """Read a MODEL_DIR's config."""
    folder = find_model(folder)
    if not folder.exists():
        hint = suggest(folder.name, [place.name for place in folder.parent.glob("*")])
        raise FolderError(f"{folder}: no such folder{hint or EXPECTED}")
    if is_checkpoint(folder):
        raise FolderError(f"{folder}: is a checkpoint of transformers; save it as a model first (`bertvision save`)")
    if not (folder / CONFIG).is_file():
        raise FolderError(f"{folder}: no {CONFIG} in it{EXPECTED}")
    content = read_json(folder / CONFIG)
    if isinstance(content, dict) and content.get("format") == ONNX_FORMAT:
        raise FolderError(
            f"{folder}: is an exported ONNX model, which is for bertvision.load, ask, serve and predict; give the "
            "folder that it was exported from"
        )
    return validate(ModelConfig, content, str(folder / CONFIG))


def find_model(folder: Path) -> Path:
    """Return the folder of a model: its own, a run's best, one that ships (`default`, `base`), or a hub id's."""
    name = str(folder)
    return shipped_model(name) if name in SHIPPED else best_model(find_model_folder(folder))
