"""Trained models -> the logits that a smaller one is to learn beside its labels.

A teacher may cut words into the same pieces and number them otherwise: BERT and MPNet have the same word pieces with
other numbers, and MPNet puts two separators between two texts. It reads a `Translation` of the windows.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from bertvision.encoder.encode import freeze
from bertvision.errors import SettingsError, told_as
from bertvision.heads.logits import reading_of
from bertvision.model_folder import load_model, read_model_config
from bertvision.settings import Settings
from bertvision.steps.context import RunContext
from bertvision.training.objective import Teach
from bertvision.windows.batches import WindowBatch
from bertvision.windows.tokens import read_layout

MOST_MISSING = 0.01  # of the word pieces; the other tokenizer reads them as unknown
UNUSED = re.compile(r"\[unused\d+\]")
ROLES = ("cls", "sep", "pad", "unk", "mask")  # of special tokens


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
    """Load a teacher and return what runs it on a batch; refuse one that cannot read the same tokens.

    A teacher whose vocabulary has the same word pieces in another order reads a translation.
    """
    model = load_model(Path(name), allow_outside=True)  # an experiment names what its user trusts
    if not context.objective.asks_as(model.config.objective) or model.config.labels != context.task.labels:
        raise SettingsError(f"finetune.teacher: {name} is a model of {model.config.task}; give one of this task")
    translation = None
    if model.encoder.tokenizer.get_vocab() != tokenizer.get_vocab():
        with told_as(SettingsError, f"finetune.teacher: {name} has another vocabulary"):
            translation = translation_between(tokenizer, model.encoder.tokenizer).to(context.compute.device)
    if "joint" in (model.config.head.readout, context.experiment.output.readout):
        raise SettingsError(
            "finetune.teacher: joint readouts, which score pairs, cannot teach or be taught; use others"
        )
    encoder, head = freeze(model.encoder, context.compute), model.head.to(context.compute.device).eval()
    read = reading_of(model.config.head, head)

    def teach(batch: WindowBatch) -> Tensor:
        read_by_it = batch if translation is None else translation.batch(batch)
        with torch.no_grad(), context.compute.autocast():
            logits: Tensor = head(*read(encoder, read_by_it).seen)
        return (logits if translation is None or logits.ndim < 3 else translation.back(logits, batch)).float()

    return teach


def teacher_signature(context: RunContext) -> Settings:
    """Name what decides the teachers, beside their settings: their weights."""
    config = context.experiment.finetune.teacher
    if config is None:
        return {}
    weights = [read_model_config(Path(name)).encoder_fingerprint for name in config.models]
    return {"teacher": weights[0] if len(weights) == 1 else weights}


@dataclass(frozen=True)
class Translation:
    """How a batch of windows reads for another encoder. Nothing in it makes the host wait for a device."""

    ids: Tensor  # by this tokenizer's number of a token: the other's
    separator: int  # this tokenizer's
    between: int  # separators that it puts between two texts
    extra: int  # how many more the other puts there

    def to(self, device: torch.device) -> "Translation":
        """Move the table to a device."""
        return Translation(self.ids.to(device), self.separator, self.between, self.extra)

    def batch(self, batch: WindowBatch) -> WindowBatch:
        """Return the windows as the other encoder reads them; labels stay where they were."""
        second, width = self._second(batch), batch.ids.shape[1] + self.extra
        places = torch.arange(width, device=batch.ids.device)[None]
        is_extra = (places >= second) & (places < second + self.extra)
        source = (places - self.extra * (places >= second + self.extra)).clamp(max=batch.ids.shape[1] - 1)
        source = torch.where(is_extra, (second - 1).clamp(min=0), source)
        # A window of one text has nothing behind its separator, and gets no other.
        last = batch.ids.shape[1] - 1
        has_second = batch.mask.gather(1, second.clamp(max=last)) * (second <= last)
        mask = torch.where(is_extra, has_second, batch.mask.gather(1, source))
        segments = batch.segments.gather(1, source)
        return batch._replace(ids=self.ids[batch.ids.gather(1, source)], mask=mask, segments=segments, packing=None)

    def back(self, logits: Tensor, batch: WindowBatch) -> Tensor:
        """Return the other's logits of tokens at this tokenizer's places; `batch` is as it was before."""
        places = torch.arange(batch.ids.shape[1], device=logits.device)[None]
        source = places + self.extra * (places >= self._second(batch))
        return logits.gather(1, source[..., None].expand(-1, -1, logits.shape[-1]))

    def _second(self, batch: WindowBatch) -> Tensor:
        """Return the place of each window's second text: behind its first separators."""
        return (batch.ids == self.separator).int().argmax(dim=1, keepdim=True) + self.between


def translation_between(own: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> Translation:
    """Relate two tokenizers; refuse where they do not cut words into the same pieces."""
    pieces, known, layout, theirs = own.get_vocab(), other.get_vocab(), read_layout(own), read_layout(other)
    missing = {piece for piece in pieces.keys() ^ known.keys() if not UNUSED.match(piece)}
    missing -= {*own.all_special_tokens, *other.all_special_tokens}
    if len(missing) > MOST_MISSING * len(pieces):
        raise SettingsError(f"{len(missing):,} word pieces, such as {min(missing)!r}, are in one of both alone")
    around = (len(layout.before), len(layout.after)) == (len(theirs.before), len(theirs.after))
    if not around or len(layout.between) > len(theirs.between):
        raise SettingsError("it joins two texts with other special tokens")
    table = torch.full((max(pieces.values()) + 1,), other.unk_token_id)
    for piece, number in pieces.items():
        table[number] = known.get(piece, other.unk_token_id)
    for role in ROLES:
        table[getattr(own, f"{role}_token_id")] = getattr(other, f"{role}_token_id")
    extra = len(theirs.between) - len(layout.between)
    return Translation(table, own.sep_token_id, len(layout.between), extra)
