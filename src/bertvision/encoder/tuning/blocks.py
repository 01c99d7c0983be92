"""Where the parts of an encoder are, one row per kind of model, and what its weights are called; checkpointing.

A place is the module whose output is what a sublayer adds to the residual: behind its dense layer and dropout, before
the sum and (in encoders that have it there) the norm.
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

# What is put into an encoder hangs below one of these words, under one name, which files leave out.
TUNED = "tuned"
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


def inserted_parameters(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """Return the weights that were put into an encoder, by the names that they have in files."""
    inserted = {name: param for name, param in model.named_parameters() if INSERTED.search(name) is not None}
    return {INSERTED.sub(r"\1.", name): param for name, param in inserted.items()}


def put_in(owner: nn.Module, word: str, module: nn.Module) -> None:
    """Put a module into an encoder, below `owner.<word>`."""
    owner.add_module(word, nn.ModuleDict({TUNED: module}))


def take_out(owner: nn.Module, word: str) -> bool:
    """Take away what `put_in` put there; return whether there was anything."""
    is_there = word in owner._modules
    if is_there:
        owner.__delattr__(word)
    return is_there


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
