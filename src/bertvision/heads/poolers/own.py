"""A pooler of the user's own: any `nn.Module` with a number of `features`, given from Python."""

from copy import deepcopy
from typing import Literal

from pydantic import ConfigDict, Field
from torch import nn

from bertvision.errors import SettingsError
from bertvision.heads.poolers.pooler import PoolerBase
from bertvision.training.checkpoint import fingerprint


class OwnPoolerConfig(PoolerBase):
    """A module that learns beside the catalog's; files name its class and its first weights, and hold no code."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    kind: Literal["own"] = "own"
    name: str  # of its class
    start: str  # fingerprint of the weights that it starts from
    module: nn.Module | None = Field(None, exclude=True)


def describe_own(module: nn.Module) -> OwnPoolerConfig:
    """Return the config of a module; refuse one that does not say how many features it makes."""
    features = getattr(module, "features", None)
    if not isinstance(features, int) or features < 1:
        raise SettingsError(
            f"{type(module).__name__}: a pooler needs `features`, the width of what it makes of each token, "
            f"got {features!r}; set self.features in its __init__"
        )
    return OwnPoolerConfig(name=type(module).__name__, start=fingerprint(module), module=module)


def copy_own(config: OwnPoolerConfig) -> nn.Module:
    """Return a copy of the module, so that every head and seed starts from the same weights."""
    if config.module is None:
        raise SettingsError(
            f"this head reads by a pooler of somebody's own, {config.name}, which no file holds; give it: "
            f"bertvision.load(folder, pooler={config.name}(...))"
        )
    return deepcopy(config.module)
