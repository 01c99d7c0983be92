"""MODEL_DIR: a head's weights, its config, and which encoder it belongs to. An encoder's folder holds its own head."""

import os
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bertvision.encoder.load import Encoder, load_encoder, quiet_transformers
from bertvision.errors import FolderError
from bertvision.features.windows import WindowConfig
from bertvision.files import read_json, write_json
from bertvision.heads.build import HeadConfig, build_head
from bertvision.heads.head import Head
from bertvision.predictions.prediction import AnswerConfig
from bertvision.settings import Config, validate
from bertvision.shapes import StackShape
from bertvision.tasks.catalog import TASKS
from bertvision.tasks.task import DataConfig, TaskName
from bertvision.training.checkpoint import fingerprint, load_weights, save_weights
from bertvision.training.objective import Objective, objective_of
from bertvision.tuning.adapter_file import ADAPTERS, save_adapters
from bertvision.tuning.variants import merge_tuning, plain_state, variant_of, variants_of

CONFIG, WEIGHTS = "model.json", "head.safetensors"
LORA = "lora.safetensors"  # the tuning alone, of an encoder that has it merged into its weights


class ModelConfig(Config):
    """All that is needed to use a head again."""

    format: Literal[1] = 1
    head: HeadConfig
    layers: int
    state_layers: tuple[int, ...] | None = None  # which of the encoder's states it reads; None: all
    hidden: int
    encoder: str  # a hub id, `default`, or a path, relative to this folder where it is of the same run
    encoder_is_path: bool
    encoder_fingerprint: str
    task: TaskName
    labels: tuple[str, ...] = ()  # names of its classes, labels or tags, by number
    data: DataConfig = DataConfig()  # how the tables that it learned from are laid out
    windows: WindowConfig
    answers: AnswerConfig

    @property
    def objective(self) -> Objective:
        """Tell what it gives for each window."""
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
    is_tuned = variants_of(encoder.model).active is not None
    plain = {name: value.cpu() for name, value in plain_state(encoder.model).items()} if is_tuned else None
    with quiet_transformers():
        encoder.model.save_pretrained(folder, state_dict=plain)
        encoder.tokenizer.save_pretrained(folder)
    if is_tuned:
        save_adapters(folder / ADAPTERS, encoder.model)
    save_head(folder, output, config)


def as_saved(encoder: Encoder) -> Encoder:
    """Give the encoder that a folder is to hold: a copy with LoRA merged into its weights, or else the very same."""
    active = variants_of(encoder.model).active
    if active is None or not variant_of(encoder.model, active).config.is_mergeable:
        return encoder
    merged = replace(encoder, model=deepcopy(encoder.model))
    merge_tuning(merged.model)
    return merged


def load_model(folder: Path) -> Model:
    """Load a MODEL_DIR with its encoder; refuse an encoder whose weights are not the ones the head was trained on."""
    config = read_model_config(folder)
    place = os.path.normpath(folder.resolve() / config.encoder) if config.encoder_is_path else config.encoder
    if config.encoder_is_path and not Path(place).is_dir():
        raise FolderError(f"{folder}: its encoder {place} is gone; put it back, or mend `encoder` in {folder / CONFIG}")
    encoder = load_encoder(place)
    if fingerprint(encoder.model) != config.encoder_fingerprint:
        raise FolderError(
            f"{folder}: the encoder {place} is not the one this head was trained on; train the head again"
        )
    return Model(config, encoder, load_head(folder, config))


def load_head(folder: Path, config: ModelConfig) -> Head:
    """Load a MODEL_DIR's head alone."""
    head = build_head(config.head, StackShape(config.layers, config.hidden), config.objective)
    load_weights(folder / WEIGHTS, head)
    head.layers = config.state_layers
    return head


def read_model_config(folder: Path) -> ModelConfig:
    """Read a MODEL_DIR's config."""
    if not (folder / CONFIG).is_file():
        raise FolderError(f"{folder}: no {CONFIG} in it; give OUT/heads/<fraction>/<head> or OUT/encoder/<fraction>")
    return validate(ModelConfig, read_json(folder / CONFIG), str(folder / CONFIG))
