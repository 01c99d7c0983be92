"""Which of the encoder's own weights learn, and from which block on a graph for gradients is built.

All that lies below the first block that learns is the frozen bottom. It runs in eval mode, without dropout.

Single weights can be frozen at random (SPEC 10.2): masks are drawn from the seed, each by the name of its weight, so
that a run that goes on draws the same ones. In the original frozen numbers have no gradient but still shrink by weight
decay; here they keep their value (`Frozen`).
"""

from collections.abc import Collection

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from bertvision.encoder.tuning.blocks import (
    PARTS,
    blocks_of,
    inserted_parameters,
    parts_of,
    plain_name,
    plain_parameters,
)
from bertvision.encoder.tuning.config import Trained
from bertvision.errors import EncoderError
from bertvision.training.loop import Frozen, Still, seed_for

NORMS = (nn.LayerNorm, nn.RMSNorm)
MASKS = "frozen_masks"  # on the model, and copied with it


def trained_names(model: PreTrainedModel, trained: Trained, *, norms: bool) -> set[str]:
    """Name the encoder's own weights that a setting trains."""
    return _chosen_names(model, trained) | (_norm_names(model) if norms else set())


def set_trained(model: PreTrainedModel, names: Collection[str]) -> None:
    """Let exactly these of the encoder's own weights learn, and all that was inserted."""
    model.requires_grad_(False)
    own = plain_parameters(model)
    for name in names:
        own[name].requires_grad_(True)
    for param in inserted_parameters(model).values():
        param.requires_grad_(True)


def freeze_share(model: PreTrainedModel, share: float | None, seed: int) -> None:
    """Freeze every number of the weights that learn with a probability; None lets all of them learn again."""
    model.__dict__.pop(MASKS, None)
    if share is None:
        return
    learning = {name: param.shape for name, param in model.named_parameters() if param.requires_grad}
    masks = {name: _draw(shape, share, seed_for(seed, "frozen", name)) for name, shape in learning.items()}
    model.__dict__[MASKS] = masks


def frozen_numbers(model: nn.Module) -> list[Frozen]:
    """List the numbers that `freeze_share` froze, on their weights' devices."""
    own = dict(model.named_parameters())
    masks: dict[str, Tensor] = model.__dict__.get(MASKS, {})
    return [Frozen(own[name], mask.to(own[name].device)) for name, mask in masks.items()]


def trained_sizes(model: nn.Module) -> dict[str, int]:
    """Count the numbers that learn, weight by weight, by name."""
    masks: dict[str, Tensor] = model.__dict__.get(MASKS, {})
    sizes = {name: param.numel() for name, param in model.named_parameters() if param.requires_grad}
    return {name: size - int(masks[name].sum()) if name in masks else size for name, size in sizes.items()}


def count_trainable(model: nn.Module) -> int:
    """Count the weights that learn, single ones that are frozen left out."""
    return sum(trained_sizes(model).values())


def _draw(shape: torch.Size, share: float, seed: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share


def still_weights(model: PreTrainedModel, *, ignores_shifts: bool) -> list[Still]:
    """Name the weights that no loss sees: the biases of attention's keys, and of the last norm where `ignores_shifts`.

    Then the loss does not change when the same is added to every last state.
    """
    if str(model.config.model_type) not in PARTS:
        return []
    parts, blocks = parts_of(model), blocks_of(model)
    still = [module for block in blocks for path, module in block.named_modules() if path == parts.key]
    if ignores_shifts and parts.norm is not None and not (len(blocks) == 1 and parts.behind_first):
        norm = blocks[-1].get_submodule(parts.norm)
        still += [] if list(norm.children()) else [norm]  # an adapter inside a norm reads its bias
    return [Still(module.bias) for module in still if isinstance(module.bias, nn.Parameter)]


def first_trained_block(model: PreTrainedModel) -> int:
    """Return the first state that training changes: 0 for the embeddings' output, i for block i, layers + 1 for none.

    What lies before it is computed without a graph, because autograd starts at the first weight that learns. Dropout
    there still acts in training mode, so the outputs below differ from step to step unless `quiet_bottom` stops it.
    """
    learning = [plain_name(name) for name, param in model.named_parameters() if param.requires_grad]
    return min((_first_state(model, name) for name in learning), default=len(blocks_of(model)) + 1)


def _first_state(model: PreTrainedModel, name: str) -> int:
    parts = parts_of(model)
    if name.startswith(parts.before):
        return 0
    if name.startswith(parts.after):
        return len(blocks_of(model)) + 1
    inside = name.removeprefix(parts.blocks + ".")
    return int(inside.partition(".")[0]) + 1 if inside != name else 1


def _chosen_names(model: PreTrainedModel, trained: Trained) -> set[str]:
    names, path, num_blocks = set(plain_parameters(model)), parts_of(model).blocks, len(blocks_of(model))
    match trained.kind:
        case "all":
            return names
        case "none":
            return set()
        case "bitfit":
            biases = {name for name in names if name.endswith(".bias")}
            if not biases:
                raise EncoderError(
                    f"train: bitfit trains biases, and this {type(model).__name__} has none; "
                    "to train its norms alone, write train: none with train_norms: true"
                )
            return biases
        case "top":
            if trained.top > num_blocks:
                raise EncoderError(
                    f"train: top:{trained.top} of {num_blocks} blocks; give {num_blocks} or less, or all"
                )
            chosen = tuple(f"{path}.{number}." for number in range(num_blocks - trained.top, num_blocks))
            return {name for name in names if name.startswith(chosen)}


def _norm_names(model: PreTrainedModel) -> set[str]:
    norms = [(path, module) for path, module in model.named_modules() if isinstance(module, NORMS)]
    return {f"{path}.{name}" for path, module in norms for name, _ in module.named_parameters(recurse=False)}


def first_above_bottom(model: PreTrainedModel) -> int | None:
    """Return the first block that learns (layers + 1 where none does); None where no block lies below it."""
    first = first_trained_block(model)
    return first if first > 1 else None


def bottom_of(model: PreTrainedModel, first: int) -> list[nn.Module]:
    """List the modules that make the input of a block, in the order in which they run."""
    parts, modules, below = parts_of(model), dict(model.named_modules()), blocks_of(model)[: first - 1]
    before = [modules[name] for path in parts.before if (name := path.removesuffix(".")) in modules]
    return [*before, *below[:1], *(modules[path] for path in parts.behind_first if path in modules), *below[1:]]


def quiet_bottom(model: PreTrainedModel, first: int) -> None:
    """Put what lies below a block into eval mode; `model.train()` undoes it."""
    for module in bottom_of(model, first):
        module.eval()
