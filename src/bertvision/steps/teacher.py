"""Trained models -> the logits that a smaller one is to learn beside its labels."""

from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from bertvision.encoder.encode import freeze
from bertvision.errors import SettingsError
from bertvision.heads.logits import reading_of
from bertvision.model_folder import load_model, read_model_config
from bertvision.settings import Settings
from bertvision.steps.context import RunContext
from bertvision.training.objective import Teach
from bertvision.windows.batches import WindowBatch


def teacher_of(context: RunContext, tokenizer: PreTrainedTokenizerBase) -> Teach | None:
    """Load an experiment's teachers and return what gives the mean of their logits for a batch."""
    config = context.experiment.finetune.teacher
    if config is None:
        return None
    if not context.objective.kind.can_be_taught:
        raise SettingsError(
            f"finetune.teacher is for questions and classes, and {context.task.name} has none; leave it out"
        )
    teachers = [_one_teacher(context, name, tokenizer) for name in config.models]

    return lambda batch: torch.stack([each(batch) for each in teachers]).mean(dim=0)


def _one_teacher(context: RunContext, name: str, tokenizer: PreTrainedTokenizerBase) -> Teach:
    """Load a teacher and return what runs it on a batch; refuse one that cannot read the same tokens."""
    model = load_model(Path(name), allow_outside=True)  # an experiment names what its user trusts
    if not context.objective.asks_as(model.config.objective) or model.config.labels != context.task.labels:
        raise SettingsError(f"finetune.teacher: {name} is a model of {model.config.task}; give one of this task")
    if model.encoder.tokenizer.get_vocab() != tokenizer.get_vocab():
        raise SettingsError(
            f"finetune.teacher: {name} has another vocabulary than {context.experiment.encoder}; give a teacher with "
            "the same one"
        )
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
    """Name what decides the teachers, beside their settings: their weights."""
    config = context.experiment.finetune.teacher
    if config is None:
        return {}
    weights = [read_model_config(Path(name)).encoder_fingerprint for name in config.models]
    return {"teacher": weights[0] if len(weights) == 1 else weights}
