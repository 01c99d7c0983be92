"""A trained model -> the logits that a smaller one is to learn."""

from pathlib import Path

import torch
from torch import Tensor

from bertvision.encoder.encode import freeze
from bertvision.errors import SettingsError
from bertvision.heads.reading import reading_of
from bertvision.model_folder import load_model, read_model_config
from bertvision.settings import Settings
from bertvision.steps.context import RunContext
from bertvision.training.losses import Teach
from bertvision.windows.batches import WindowBatch


def teacher_of(context: RunContext, vocabulary: dict[str, int]) -> Teach | None:
    """Load an experiment's teacher and give what runs it on a batch; refuse one that cannot read the same tokens."""
    config = context.experiment.finetune.teacher
    if config is None:
        return None
    if not context.objective.kind.can_be_taught:
        raise SettingsError(
            f"finetune.teacher is for questions and classes, and {context.task.name} has none; leave it out"
        )
    model = load_model(Path(config.model))
    if (model.config.objective, model.config.labels) != (context.objective, context.task.labels):
        raise SettingsError(
            f"finetune.teacher: {config.model} is a model of {model.config.task}; give one of this task"
        )
    if model.encoder.tokenizer.get_vocab() != vocabulary:
        raise SettingsError(f"finetune.teacher: {config.model} has another vocabulary; give one with the same tokens")
    if "joint" in (model.config.head.readout, context.experiment.output.readout):
        raise SettingsError(
            "finetune.teacher: joint readouts, which score pairs, cannot teach or be taught; use others"
        )
    encoder, head = freeze(model.encoder, context.compute), model.head.to(context.compute.device).eval()
    read = reading_of(model.config.head, head)

    def teach(batch: WindowBatch) -> Tensor:
        with torch.no_grad(), context.compute.autocast():
            logits: Tensor = head(*read(encoder, batch).seen)
        return logits.float()

    return teach


def teacher_signature(context: RunContext) -> Settings:
    """Name what decides a teacher, beside its settings: its weights."""
    config = context.experiment.finetune.teacher
    return {} if config is None else {"teacher": read_model_config(Path(config.model)).encoder_fingerprint}
