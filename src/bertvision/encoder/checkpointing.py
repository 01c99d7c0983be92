"""Gradient checkpointing: blocks keep their inputs alone and run again in the backward pass.

transformers calls it activation checkpointing from 5.23 on; both names are known here, and nowhere else.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from transformers import PreTrainedModel

from bertvision.errors import SettingsError


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
