"""Makes the default model's encoder, whose teacher has another vocabulary: python tools/translated_teacher.py OUT.

Runs `taught` of default_model/model.yaml. Its teacher, the base model, cuts words into the same pieces and numbers them
otherwise: BERT and MPNet have the same word pieces with other numbers, and MPNet puts two separators between two texts.
It reads a `Translation` of the windows. `bertvision run` refuses such a teacher.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from arguments import read_arguments
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from bertvision.encoder.encode import freeze
from bertvision.errors import SettingsError
from bertvision.experiment import read_experiment
from bertvision.heads.logits import reading_of
from bertvision.model_folder import load_model
from bertvision.stages import finetune
from bertvision.stages.context import RunContext
from bertvision.stages.run import run
from bertvision.training.objective import Teach
from bertvision.windows.batches import WindowBatch
from bertvision.windows.tokens import read_layout

EXPERIMENT, VARIANT = "default_model/model", "variant=taught"
MOST_MISSING = 0.01  # of the word pieces; the other tokenizer reads them as unknown
UNUSED = re.compile(r"\[unused\d+\]")
ROLES = ("cls", "sep", "pad", "unk", "mask")  # of special tokens


def main(out: Path, *overrides: str) -> None:
    """Run the experiment with a teacher that reads translations."""
    finetune.teacher_of = translated_teacher
    run(read_experiment(EXPERIMENT, (VARIANT, *overrides)), out / "taught")


def translated_teacher(context: RunContext, tokenizer: PreTrainedTokenizerBase) -> Teach:
    """Load the experiment's one teacher and return what gives its logits of a batch."""
    config = context.experiment.finetune.teacher
    assert config is not None
    (name,) = config.models
    model = load_model(Path(name), allow_outside=True)
    translation = translation_between(tokenizer, model.encoder.tokenizer).to(context.compute.device)
    encoder, head = freeze(model.encoder, context.compute), model.head.to(context.compute.device).eval()
    read = reading_of(model.config.head, head)

    def teach(batch: WindowBatch) -> Tensor:
        with torch.no_grad(), context.compute.autocast():
            logits: Tensor = head(*read(encoder, translation.batch(batch)).seen)
        return translation.back(logits, batch).float()

    return teach


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


if __name__ == "__main__":
    place, changes = read_arguments(__doc__, "OUT", "[SETTING...]")
    main(Path(place), *changes)
