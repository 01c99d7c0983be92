"""Named modules side by side at one place of an encoder, at most one of which acts."""

from collections.abc import Callable
from typing import Any

from torch import nn


class Slot(nn.ModuleDict):
    """What several tunings inserted at one place, by their keys; `active` names the tuning that acts."""

    active: str | None = None

    def current(self) -> nn.Module | None:
        """Give the module that acts, or None where the encoder is to be plain here."""
        key = None if self.active is None else key_of(self.active)
        return self[key] if key is not None and key in self else None


EMPTY, PREFIX = Slot(), "tuning_"


def key_of(tuning: str) -> str:
    """Name what a tuning inserts: as the tuning, behind a prefix where torch takes no child of that name.

    Torch refuses the names of a module's attributes, such as `train` or `type`; transformers adds to them as it loads.
    """
    return f"{PREFIX}{tuning}" if hasattr(EMPTY, tuning) or tuning.startswith(PREFIX) else tuning


def fill_slot(owner: nn.Module, word: str, tuning: str, module: nn.Module) -> bool:
    """Put a tuning's module below `owner.<word>`; tells whether this is the first one there, so that hooks are due."""
    is_first = word not in owner._modules
    if is_first:
        owner.add_module(word, Slot())
    slot = owner.get_submodule(word)
    assert isinstance(slot, Slot)
    slot[key_of(tuning)] = module
    return is_first


def empty_slot(owner: nn.Module, word: str, tuning: str) -> bool:
    """Take a tuning's module away again; tells whether it was the last one, so that hooks can go."""
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
