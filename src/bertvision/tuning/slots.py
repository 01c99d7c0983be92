"""Named modules side by side at one place of an encoder, at most one of which acts."""

from collections.abc import Callable
from typing import Any

from torch import nn


class Slot(nn.ModuleDict):
    """What several tunings inserted at one place, by their names; `active` names the one that acts."""

    active: str | None = None

    def current(self) -> nn.Module | None:
        """Give the module that acts, or None where the encoder is to be plain here."""
        return self[self.active] if self.active is not None and self.active in self else None


def fill_slot(owner: nn.Module, word: str, tuning: str, module: nn.Module) -> bool:
    """Put a tuning's module below `owner.<word>`; tells whether this is the first one there, so that hooks are due."""
    is_first = word not in owner._modules
    if is_first:
        owner.add_module(word, Slot())
    slot = owner.get_submodule(word)
    assert isinstance(slot, Slot)
    slot[tuning] = module
    return is_first


def empty_slot(owner: nn.Module, word: str, tuning: str) -> bool:
    """Take a tuning's module away again; tells whether it was the last one, so that hooks can go."""
    slot = owner._modules.get(word)
    if not isinstance(slot, Slot) or tuning not in slot:
        return False
    del slot[tuning]
    if not len(slot):
        owner.__delattr__(word)
    return not len(slot)


def remove_hooks(hooks: dict[int, Callable[..., Any]], ours: Callable[[Any], bool]) -> None:
    """Take away the hooks that are ours.

    Handles would do it for this very module, but not for its deep copy.
    """
    for key in [key for key, hook in hooks.items() if ours(hook)]:
        del hooks[key]
