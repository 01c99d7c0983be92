"""Random freezing of single weights (SPEC 10.2): of every weight that learns, a share of its numbers does not.

Masks are drawn from the seed, each by the name of its weight, so that a run that goes on draws the same ones. In the
original frozen numbers have no gradient but still shrink by weight decay; here they keep their value (`Frozen`).
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from bertvision.training.loop import Frozen, seed_for
from bertvision.training.sharding import own_part, split_like

MASKS = "frozen_masks"  # on the model, and copied with it


def freeze_share(model: PreTrainedModel, share: float | None, seed: int) -> None:
    """Freeze every number of the weights that learn with a probability; None lets all of them learn again."""
    model.__dict__.pop(MASKS, None)
    if share is None:
        return
    learning = {name: param.shape for name, param in model.named_parameters() if param.requires_grad}
    masks = {name: _draw(shape, share, seed_for(seed, "frozen", name)) for name, shape in learning.items()}
    model.__dict__[MASKS] = masks


def frozen_numbers(model: nn.Module) -> list[Frozen]:
    """List the numbers that `freeze_share` froze, on their weights' devices and split as these are."""
    own = dict(model.named_parameters())
    masks: dict[str, Tensor] = model.__dict__.get(MASKS, {})
    return [
        Frozen(own[name], own_part(split_like(mask.to(own[name].device), own[name]))) for name, mask in masks.items()
    ]


def trained_sizes(model: nn.Module) -> dict[str, int]:
    """Count the numbers that learn, weight by weight, by name."""
    masks: dict[str, Tensor] = model.__dict__.get(MASKS, {})
    sizes = {name: param.numel() for name, param in model.named_parameters() if param.requires_grad}
    return {name: size - int(masks[name].sum()) if name in masks else size for name, size in sizes.items()}


def _draw(shape: torch.Size, share: float, seed: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share
