"""Parasites: small modules beside the blocks that read earlier states and add one vector to a block's input.

From SPEC 10.1, with its two defects fixed: padding has no part in the vector, and the encoder masks it as it always
does; and no sigmoid stands before the loss, because logits are the output layer's business.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from bertvision.encoder.tuning.blocks import TUNED, blocks_of, is_checkpointing, put_in, remove_hooks, take_out
from bertvision.errors import EncoderError
from bertvision.shapes import LayerStates, TokenFeatures

SLOT = "parasites"


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
    put_in(model, SLOT, parasites)
    model.register_forward_pre_hook(_begin, with_kwargs=True, prepend=True)  # before an MPNet makes another mask
    model.register_forward_hook(_end, always_call=True)
    for number, block in enumerate(blocks):
        # A partial is copied together with the parasites that it holds, so a deep copy feeds its own.
        block.register_forward_pre_hook(partial(_feed, parasites, number), with_kwargs=True)


def remove_parasites(model: PreTrainedModel) -> None:
    """Take parasites away."""
    if take_out(model, SLOT):
        for module in (model, *blocks_of(model)):
            remove_hooks(module._forward_pre_hooks, _is_ours)
            remove_hooks(module._forward_hooks, _is_ours)


def _is_ours(hook: Callable[..., Any]) -> bool:
    return (hook.func if isinstance(hook, partial) else hook) in (_begin, _feed, _end)


def _parasites_of(model: nn.Module) -> Parasites:
    parasites = model.get_submodule(f"{SLOT}.{TUNED}")
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
