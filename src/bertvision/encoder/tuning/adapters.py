"""Houlsby's and Pfeiffer's adapters: small layers with a residual of their own, put into every block; LoRA; parasites.

Adapters are children of the place they follow, called by a forward hook there: the encoder's own weights keep their
names, its classes stay transformers' own, and copies, autocast and `save_pretrained` work as before.

Of a feed-forward's output x and its residual r a block like BERT's makes LN(x + r). Houlsby's second adapter makes it
LN(x + A(x) + r), Pfeiffer's LN(x + A(LN(x + r)) + r), with ReLU in A: it reads what the plain block would give
(AdapterFusion; AdapterHub's `seq_bn`). Where norms stand before, as in ModernBERT, it reads x as Houlsby's second does.

LoRA comes through peft: low-rank changes of the query and value projections, or of every linear layer of the blocks,
which can be merged into them.

Parasites are small modules beside the blocks that read earlier states and add one vector to a block's input. From SPEC
10.1, with its two defects fixed: padding has no part in the vector, and the encoder masks it as it always does; and no
sigmoid stands before the loss, because logits are the output layer's business.
"""

import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from bertvision.encoder.tuning.blocks import (
    TUNED,
    WITHIN_INSERTED,
    blocks_of,
    is_checkpointing,
    parts_of,
    put_in,
    remove_hooks,
    take_out,
)
from bertvision.errors import EncoderError, MissingExtraError
from bertvision.shapes import LayerStates, TokenFeatures

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


PARASITES_SLOT = "parasites"


class Parasite(nn.Module):
    """Weigh the tokens of earlier states by layer and position, and turn their sum into one vector."""

    def __init__(self, states: int, length: int, hidden: int, width: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(states, length))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.down, self.up = nn.Linear(hidden, width), nn.Linear(width, hidden)

    def forward(self, states: LayerStates, mask: Float[Tensor, "batch token"]) -> Float[Tensor, "batch 1 hidden"]:
        """Return what every token of the block's input gets; short rows use the first positions' weights."""
        weights = self.weights[:, : states.shape[2]]
        read = torch.einsum("lt,blth,bt->bh", weights, states, mask.to(states.dtype)) + self.bias
        vector: Tensor = self.up(F.gelu(self.down(read)))
        return vector[:, None]


class Parasites(nn.ModuleList):
    """One parasite for each block, and what they have seen so far in a forward pass."""

    def __init__(self, blocks: int, hidden: int, width: int, states: int, length: int) -> None:
        super().__init__(Parasite(min(states, number), length, hidden, width) for number in range(1, blocks + 1))
        self.length, self.depth = length, states
        self.forget()

    def forget(self) -> None:
        """Let go of the states of the last pass."""
        self._seen: list[Tensor] = []
        self._mask: Tensor | None = None

    def begin(self, mask: Tensor | None) -> None:
        """Note a pass's mask: true or 1 for real tokens; None: all tokens are real."""
        if mask is not None and mask.ndim != 2:
            raise EncoderError(f"parasites need a mask of batch x tokens, got one of {mask.ndim} axes")
        self._seen, self._mask = [], mask

    def feed(self, number: int, features: TokenFeatures) -> TokenFeatures:
        """Return a block's input with what its parasite adds."""
        if features.shape[1] > self.length:
            raise EncoderError(
                f"a row of {features.shape[1]} tokens, but the parasites have weights for {self.length}; "
                "cut shorter windows or raise tune.parasites.length"
            )
        self._seen = [*self._seen, features][-self.depth :]
        mask = features.new_ones(features.shape[:2]) if self._mask is None else self._mask.to(features.dtype)
        vector: Tensor = self[number](torch.stack(self._seen, dim=1), mask)
        return features + vector


def insert_parasites(model: PreTrainedModel, width: int, states: int | None, length: int) -> None:
    """Add a parasite to every block, which reads the last `states` states before it (None: all)."""
    blocks, own = blocks_of(model), next(model.parameters())
    hidden, depth = int(model.config.hidden_size), len(blocks) if states is None else states
    parasites = Parasites(len(blocks), hidden, width, depth, length).to(own.device, own.dtype)
    put_in(model, PARASITES_SLOT, parasites)
    model.register_forward_pre_hook(_begin, with_kwargs=True, prepend=True)  # before an MPNet makes another mask
    model.register_forward_hook(_end, always_call=True)
    for number, block in enumerate(blocks):
        # A partial is copied together with the parasites that it holds, so a deep copy feeds its own.
        block.register_forward_pre_hook(partial(_feed, parasites, number), with_kwargs=True)


def remove_parasites(model: PreTrainedModel) -> None:
    """Take parasites away."""
    if take_out(model, PARASITES_SLOT):
        for module in (model, *blocks_of(model)):
            remove_hooks(module._forward_pre_hooks, _is_ours)
            remove_hooks(module._forward_hooks, _is_ours)


def _is_ours(hook: Callable[..., Any]) -> bool:
    return (hook.func if isinstance(hook, partial) else hook) in (_begin, _feed, _end)


def _parasites_of(model: nn.Module) -> Parasites:
    parasites = model.get_submodule(f"{PARASITES_SLOT}.{TUNED}")
    assert isinstance(parasites, Parasites)
    return parasites


def _begin(model: PreTrainedModel, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    if model.training and is_checkpointing(model):
        # A block is run again in the backward pass, when the mask and the states before it are gone.
        raise EncoderError(
            "parasites cannot learn with gradient checkpointing, which would give wrong gradients; "
            "switch it off, or insert adapters or LoRA instead"
        )
    by_position = dict(zip(inspect.signature(model.forward).parameters, arguments, strict=False))
    _parasites_of(model).begin({**by_position, **keywords}.get("attention_mask"))


def _feed(
    parasites: Parasites, number: int, _block: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if arguments:
        return (parasites.feed(number, arguments[0]), *arguments[1:]), keywords
    return arguments, {**keywords, "hidden_states": parasites.feed(number, keywords["hidden_states"])}


def _end(model: nn.Module, _arguments: Any, output: Any) -> None:  # noqa: ANN401 (torch's form of a hook)
    _parasites_of(model).forget()
