"""LoRA through peft: low-rank changes of the query and value projections, which can be merged into them."""

from typing import Any

from torch import nn
from transformers import PreTrainedModel

from bertvision.encoder.tuning.blocks import WITHIN_INSERTED, parts_of
from bertvision.encoder.tuning.slots import key_of
from bertvision.errors import MissingExtraError


def insert_lora(model: PreTrainedModel, rank: int, tuning: str) -> None:
    """Put LoRA of a rank on query and value; ModernBERT has one matrix for query, key and value, so on all three."""
    check_peft()
    from peft import LoraConfig, inject_adapter_in_model

    # Of the encoder's own: by their bare names peft would also take an adapter of a tuning named "value" for one.
    targets = rf"(?!{WITHIN_INSERTED}).*\.(?:{'|'.join(parts_of(model).query_value)})"
    # Scale 1 (alpha = rank), as in the paper's runs with RoBERTa base (Hu et al. 2021, table 9).
    config = LoraConfig(r=rank, lora_alpha=rank, target_modules=targets)
    try:
        inject_adapter_in_model(config, model, adapter_name=key_of(tuning))
    finally:  # peft leaves its config behind and would warn about it at the next tuning; ours is kept elsewhere
        model.__dict__.pop("peft_config", None)


def check_peft() -> None:
    """Say what to install where peft is missing."""
    try:
        import peft  # noqa: F401 (that it is there is the question)
    except ImportError:
        raise MissingExtraError("peft", "peft") from None


def activate_lora(model: PreTrainedModel, tuning: str | None) -> None:
    """Let one tuning's LoRA act, or none where it has none."""
    key = None if tuning is None else key_of(tuning)
    for _, _, layer in _lora_layers(model):
        layer.enable_adapters(key in layer.lora_A)
        layer.set_adapter([key] if key in layer.lora_A else [])  # peft would warn if the active one were removed


def remove_lora(model: PreTrainedModel, tuning: str) -> None:
    """Take a tuning's LoRA away, and peft's layers where it was the last."""
    for parent, name, layer in _lora_layers(model):
        if key_of(tuning) in layer.lora_A:
            layer.delete_adapter(key_of(tuning))
        if not layer.lora_A:
            setattr(parent, name, layer.get_base_layer())


def merge_lora(model: PreTrainedModel, tuning: str) -> None:
    """Add a tuning's LoRA to the projections themselves, which then cost what they did without it."""
    for parent, name, layer in _lora_layers(model):
        layer.merge(adapter_names=[key_of(tuning)])
        setattr(parent, name, layer.get_base_layer())


def _lora_layers(model: PreTrainedModel) -> list[tuple[nn.Module, str, Any]]:
    """List peft's layers with the module and the name they hang from; without an import, as peft may be absent."""
    return [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if hasattr(type(child), "get_base_layer")
    ]
