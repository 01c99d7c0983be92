"""Houlsby's and Pfeiffer's adapters: small layers with a residual of their own, put into every block; and LoRA.

Adapters are children of the place they follow, called by a forward hook there: the encoder's own weights keep their
names, its classes stay transformers' own, and copies, autocast and `save_pretrained` work as before.

Of a feed-forward's output x and its residual r a block like BERT's makes LN(x + r). Houlsby's second adapter makes it
LN(x + A(x) + r), Pfeiffer's LN(x + A(LN(x + r)) + r), with ReLU in A: it reads what the plain block would give
(AdapterFusion; AdapterHub's `seq_bn`). Where norms stand before, as in ModernBERT, it reads x as Houlsby's second does.

LoRA comes through peft: low-rank changes of the query and value projections, or of every linear layer of the blocks,
which can be merged into them.
"""

import re
from typing import Any, Literal

from torch import Tensor, nn
from transformers import PreTrainedModel

from bertvision.encoder.tuning.blocks import (
    TUNED,
    WITHIN_INSERTED,
    blocks_of,
    parts_of,
    put_in,
    remove_hooks,
    take_out,
)
from bertvision.errors import MissingExtraError
from bertvision.shapes import TokenFeatures

BottleneckKind = Literal["houlsby", "pfeiffer"]
SLOT = "adapters"
START = 1e-3  # standard deviation at the start, which makes an adapter nearly the identity


class Bottleneck(nn.Module):
    """Project down, apply GELU (tanh form, SPEC 11.2) or ReLU, project up, add to what came in."""

    def __init__(self, hidden: int, width: int, kind: BottleneckKind = "houlsby") -> None:
        super().__init__()
        self.down, self.up = nn.Linear(hidden, width), nn.Linear(width, hidden)
        self.activation = nn.GELU(approximate="tanh") if kind == "houlsby" else nn.ReLU()
        for layer in (self.down, self.up):
            nn.init.trunc_normal_(layer.weight, std=START, a=-2 * START, b=2 * START)  # as TensorFlow truncates
            nn.init.zeros_(layer.bias)

    def forward(self, features: TokenFeatures) -> TokenFeatures:
        """Change every token by itself: padding and neighbours play no part."""
        return features + self.changes(features)

    def changes(self, features: TokenFeatures) -> TokenFeatures:
        """Return what is added."""
        changes: Tensor = self.up(self.activation(self.down(features)))
        return changes


def insert_bottlenecks(model: PreTrainedModel, kind: BottleneckKind, width: int) -> None:
    """Put adapters behind every block's attention and feed-forward (Houlsby) or behind its last norm (Pfeiffer)."""
    own = next(model.parameters())
    for place in _places_of(model, kind):
        # Made on the CPU, so that a seed gives the same start on every device.
        adapter = Bottleneck(int(model.config.hidden_size), width, kind).to(own.device, own.dtype)
        put_in(place, SLOT, adapter)
        place.register_forward_hook(_adapt_norm if isinstance(place, nn.LayerNorm) else _adapt)


def remove_bottlenecks(model: PreTrainedModel) -> None:
    """Take adapters away."""
    for place in dict.fromkeys([*_places_of(model, "houlsby"), *_places_of(model, "pfeiffer")]):
        if take_out(place, SLOT):
            remove_hooks(place._forward_hooks, lambda hook: hook in (_adapt, _adapt_norm))


def _places_of(model: PreTrainedModel, kind: BottleneckKind) -> list[nn.Module]:
    """List the modules that adapters follow, block by block."""
    parts = parts_of(model)
    inside = (parts.attention, parts.feed_forward) if kind == "houlsby" else (parts.norm or parts.feed_forward,)
    return [block.get_submodule(path) for block in blocks_of(model) for path in inside]


def _adapt(place: nn.Module, _arguments: Any, output: Tensor) -> Tensor:  # noqa: ANN401 (torch's form of a hook)
    adapted: Tensor = _adapter_of(place)(output)
    return adapted


def _adapt_norm(place: nn.Module, arguments: tuple[Tensor], output: Tensor) -> Tensor:
    """Add what the adapter makes of a norm's output to its input, and normalise again."""
    changed = arguments[0] + _adapter_of(place).changes(output)
    normed: Tensor = place.forward(changed)  # not called: that would come here again
    return normed


def _adapter_of(place: nn.Module) -> Bottleneck:
    adapter = place.get_submodule(f"{SLOT}.{TUNED}")
    assert isinstance(adapter, Bottleneck)
    return adapter


def insert_lora(model: PreTrainedModel, rank: int, *, everywhere: bool = False) -> None:
    """Put LoRA of a rank on query and value (in ModernBERT one matrix with key), or `everywhere` in the blocks."""
    check_peft()
    from peft import LoraConfig, inject_adapter_in_model

    # Of the encoder's own: by their bare names peft would also take layers of adapters for them.
    parts = parts_of(model)
    query_value = rf"(?!{WITHIN_INSERTED}).*\.(?:{'|'.join(parts.query_value)})"
    targets = _linear_layers(model, f"{parts.blocks}.") if everywhere else query_value
    # Scale 1 (alpha = rank), as in the paper's runs with RoBERTa base (Hu et al. 2021, table 9).
    config = LoraConfig(r=rank, lora_alpha=rank, target_modules=targets)
    try:
        inject_adapter_in_model(config, model, adapter_name=TUNED)
    finally:  # peft leaves its config behind; ours is kept elsewhere
        model.__dict__.pop("peft_config", None)


def _linear_layers(model: PreTrainedModel, below: str) -> list[str]:
    """Name the encoder's own linear layers below a place; peft moves those that it changes below `base_layer`."""
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    own = (name for name in linear if name.startswith(below) and not re.fullmatch(WITHIN_INSERTED, name))
    return [name.removesuffix(".base_layer") for name in own]


def check_peft() -> None:
    """Say what to install where peft is missing."""
    try:
        import peft  # noqa: F401 (that it is there is the question)
    except ImportError:
        raise MissingExtraError("peft", "peft") from None


def remove_lora(model: PreTrainedModel) -> None:
    """Take LoRA away, and peft's layers with it."""
    for parent, name, layer in _lora_layers(model):
        setattr(parent, name, layer.get_base_layer())


def merge_lora(model: PreTrainedModel) -> None:
    """Add LoRA to the projections themselves, which then cost what they did without it."""
    for parent, name, layer in _lora_layers(model):
        layer.merge(adapter_names=[TUNED])
        setattr(parent, name, layer.get_base_layer())


def _lora_layers(model: PreTrainedModel) -> list[tuple[nn.Module, str, Any]]:
    """List peft's layers with the module and the name they hang from; without an import, as peft may be absent."""
    return [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if hasattr(type(child), "get_base_layer")
    ]
