"""Where the parts of an encoder are, one row per kind of model, and what its weights are called; checkpointing.

A place is the module whose output is what a sublayer adds to the residual: behind its dense layer and dropout, before
the sum and (in encoders that have it there) the norm.
What several tunings insert at one place stands in a slot there, by name, side by side; at most one of them acts.
Blocks that are checkpointed keep their inputs alone and run again in the backward pass. transformers calls it
activation checkpointing from 5.23 on; both names are known here, and nowhere else.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from bertvision.errors import EncoderError, SettingsError


@dataclass(frozen=True)
class Parts:
    """Paths of an encoder's parts: of its list of blocks, of the places in a block, and of what lies around blocks."""

    blocks: str = "encoder.layer"
    attention: str = "attention.output.dropout"
    feed_forward: str = "output.dropout"
    norm: str | None = "output.LayerNorm"  # of the feed-forward's output and its residual; None: norms stand before
    # Projects keys whose bias adds the same to all scores of a query, which a softmax does not see: of DeBERTa-v2's
    # those of positions alone (by which others are multiplied), of ModernBERT's none (they are rotated).
    key: str | None = "attention.self.key"
    query_value: tuple[str, ...] = ("query", "value")  # what LoRA changes
    before: tuple[str, ...] = ("embeddings.",)  # makes the first state
    after: tuple[str, ...] = ("pooler.",)  # reads the last one; all else outside of blocks serves every block
    behind_first: tuple[str, ...] = ()  # stands between the first block and the second, where the encoder has it


BERT = Parts()
PARTS = {
    "bert": BERT,
    "camembert": BERT,
    "deberta-v2": Parts(  # v3's too
        key="attention.self.pos_key_proj",
        query_value=("query_proj", "value_proj"),
        behind_first=("encoder.conv",),
    ),
    "distilbert": Parts(
        "transformer.layer",
        "attention.out_lin",
        "ffn.dropout",
        "output_layer_norm",
        "attention.k_lin",
        query_value=("q_lin", "v_lin"),
    ),
    "electra": Parts(before=("embeddings.", "embeddings_project.")),
    "modernbert": Parts(
        "layers", "attn.out_drop", "mlp.Wo", norm=None, key=None, query_value=("Wqkv",), after=("final_norm.",)
    ),  # one matrix for all
    "mpnet": Parts(attention="attention.dropout", key="attention.attn.k", query_value=("q", "v")),
    "roberta": BERT,
    "xlm-roberta": BERT,
}

# What is put into an encoder hangs below one of these words, under the key of its tuning.
WORDS = "adapters|lora_A|lora_B|parasites"
INSERTED = re.compile(rf"(?:^|(?<=\.))({WORDS})\.([^.]+)\.")
WITHIN_INSERTED = rf"(?:.*\.)?(?:{WORDS})\..*"  # of a module's name


def parts_of(model: PreTrainedModel) -> Parts:
    """Look up where an encoder's parts are."""
    kind = str(model.config.model_type)
    if kind not in PARTS or not hasattr(model, PARTS[kind].blocks.partition(".")[0]):
        raise EncoderError(
            f"cannot tune inside a {type(model).__name__} ({kind}); known kinds of plain encoders: {', '.join(PARTS)}"
        )
    return PARTS[kind]


def blocks_of(model: PreTrainedModel) -> list[nn.Module]:
    """List an encoder's blocks, the lowest first."""
    return list(model.get_submodule(parts_of(model).blocks).children())


def plain_parameters(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """Return the encoder's own weights by the names they have where nothing is inserted."""
    named = model.named_parameters()
    return {plain_name(name): param for name, param in named if INSERTED.search(name) is None}


def plain_name(name: str) -> str:
    """Name a weight as the plain encoder does: peft moves a layer below `base_layer`."""
    return name.replace(".base_layer.", ".")


def inserted_parameters(model: PreTrainedModel, tuning: str) -> dict[str, nn.Parameter]:
    """Return the weights that a tuning inserted, by names that do not mention the tuning's own."""
    found = {name: INSERTED.search(name) for name, _ in model.named_parameters()}
    return {
        INSERTED.sub(r"\1.", name): param
        for name, param in model.named_parameters()
        if (match := found[name]) is not None and match[2] == key_of(tuning)
    }


class Slot(nn.ModuleDict):
    """What several tunings inserted at one place, by their keys; `active` names the tuning that acts."""

    active: str | None = None

    def current(self) -> nn.Module | None:
        """Return the module that acts, or None where the encoder is to be plain here."""
        key = None if self.active is None else key_of(self.active)
        return self[key] if key is not None and key in self else None


EMPTY, PREFIX = Slot(), "tuning_"


def key_of(tuning: str) -> str:
    """Name what a tuning inserts: as the tuning, behind a prefix where torch takes no child of that name.

    Torch refuses the names of a module's attributes, such as `train` or `type`; transformers adds to them as it loads.
    """
    return f"{PREFIX}{tuning}" if hasattr(EMPTY, tuning) or tuning.startswith(PREFIX) else tuning


def fill_slot(owner: nn.Module, word: str, tuning: str, module: nn.Module) -> bool:
    """Put a tuning's module below `owner.<word>`; return whether it is the first one there, so that hooks are due."""
    is_first = word not in owner._modules
    if is_first:
        owner.add_module(word, Slot())
    slot = owner.get_submodule(word)
    assert isinstance(slot, Slot)
    slot[key_of(tuning)] = module
    return is_first


def empty_slot(owner: nn.Module, word: str, tuning: str) -> bool:
    """Take a tuning's module away again; return whether it was the last one, so that hooks can go."""
    slot = owner._modules.get(word)
    if not isinstance(slot, Slot) or key_of(tuning) not in slot:
        return False
    del slot[key_of(tuning)]
    if not len(slot):
        owner.__delattr__(word)
    return not len(slot)


def remove_hooks(hooks: dict[int, Callable[..., Any]], ours: Callable[[Any], bool]) -> None:
    """Take away the hooks that are ours.

    Handles would do it for this very module, but not for its deep copy.
    """
    for key in [key for key, hook in hooks.items() if ours(hook)]:
        del hooks[key]


@contextmanager
def checkpointed(model: PreTrainedModel, is_asked: bool) -> Iterator[None]:
    """Within this, where asked for, a model's blocks are checkpointed."""
    if not is_asked:
        yield
        return
    if not model.supports_gradient_checkpointing:
        raise SettingsError(
            f"finetune.gradient_checkpointing is not possible in {type(model).__name__}; leave it out, and use smaller "
            "batches with finetune.accumulate"
        )
    enable_checkpointing(model)
    try:
        yield
    finally:
        disable_checkpointing(model)


def enable_checkpointing(model: PreTrainedModel, *, use_reentrant: bool = False) -> None:
    """Checkpoint every block of a model."""
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": use_reentrant})


def disable_checkpointing(model: PreTrainedModel) -> None:
    """Checkpoint no block any more."""
    disable = getattr(model, "activation_checkpointing_disable", None) or model.gradient_checkpointing_disable
    disable()


def is_checkpointing(model: PreTrainedModel) -> bool:
    """Return whether any block of a model is checkpointed."""
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
