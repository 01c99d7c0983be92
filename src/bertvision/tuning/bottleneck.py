"""Houlsby's and Pfeiffer's adapters: small layers with a residual of their own, put into every block of an encoder.

They are children of the place that they follow, called by a forward hook there: the encoder's own weights keep their
names, its classes stay transformers' own, and copies, autocast and `save_pretrained` work as before.

"Pfeiffer" is Houlsby's second adapter alone: of a feed-forward's output x and its residual r a block like BERT's makes
LN(x + A(x) + r), with A(x) = W2 gelu(W1 x). AdapterFusion's own (AdapterHub's `seq_bn`) reads behind the sum and the
norm, LN(x + A(LN(x + r)) + r), with ReLU in A and frozen norms.
"""

from typing import Any, Literal

from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from bertvision.shapes import TokenFeatures
from bertvision.tuning.blocks import blocks_of, parts_of
from bertvision.tuning.slots import Slot, empty_slot, fill_slot, remove_hooks

SLOT = "adapters"
START = 1e-3  # standard deviation at the start, which makes an adapter nearly the identity


class Bottleneck(nn.Module):
    """Project down, apply GELU (tanh form), project up, add to what came in (SPEC 11.2)."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(hidden, width), nn.Linear(width, hidden)
        for layer in (self.down, self.up):
            nn.init.trunc_normal_(layer.weight, std=START, a=-2 * START, b=2 * START)  # as TensorFlow truncates
            nn.init.zeros_(layer.bias)

    def forward(self, features: TokenFeatures) -> TokenFeatures:
        """Change every token by itself: padding and neighbours play no part."""
        changes: Tensor = self.up(F.gelu(self.down(features), approximate="tanh"))
        return features + changes


def insert_bottlenecks(model: PreTrainedModel, kind: Literal["houlsby", "pfeiffer"], width: int, tuning: str) -> None:
    """Put an adapter behind every block's attention and feed-forward (Houlsby), or the latter alone (Pfeiffer)."""
    own = next(model.parameters())
    for place in places_of(model, kind):
        # Made on the CPU, so that a seed gives the same start on every device.
        adapter = Bottleneck(int(model.config.hidden_size), width).to(own.device, own.dtype)
        if fill_slot(place, SLOT, tuning, adapter):
            place.register_forward_hook(_adapt)


def remove_bottlenecks(model: PreTrainedModel, tuning: str) -> None:
    """Take a tuning's adapters away."""
    for place in places_of(model, "houlsby"):
        if empty_slot(place, SLOT, tuning):
            remove_hooks(place._forward_hooks, lambda hook: hook is _adapt)


def places_of(model: PreTrainedModel, kind: Literal["houlsby", "pfeiffer"]) -> list[nn.Module]:
    """List the modules that adapters follow, block by block."""
    parts = parts_of(model)
    inside = (parts.attention, parts.feed_forward) if kind == "houlsby" else (parts.feed_forward,)
    return [block.get_submodule(path) for block in blocks_of(model) for path in inside]


def _adapt(place: nn.Module, _arguments: Any, output: Tensor) -> Tensor:  # noqa: ANN401 (torch's form of a hook)
    slot = place.get_submodule(SLOT)
    adapter = slot.current() if isinstance(slot, Slot) else None
    return output if adapter is None else adapter(output)
