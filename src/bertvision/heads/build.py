"""A head's config, and the head that it describes."""

from typing import Annotated, Any

import torch
from pydantic import Field, field_validator, model_validator
from torch import nn

from bertvision.errors import SettingsError
from bertvision.heads.catalog import CATALOG, SCORED, Kind, ReadoutKind, known, tasks_of
from bertvision.heads.head import Count, Head, count_parameters
from bertvision.heads.joint_readout import JointReadout
from bertvision.heads.poolers.build import AnyPooler, build_pooler
from bertvision.heads.poolers.pooler import TaskKind
from bertvision.heads.readouts import ClassReadout, SpanReadout
from bertvision.settings import Config
from bertvision.shapes import StackShape

PoolerConfig = Annotated[AnyPooler, Field(discriminator="kind")]


class HeadConfig(Config):
    """A head of an experiment: a catalog name, or a mapping with a name of its own and a changed part.

    In YAML: `adapter_64_shared`, `{name: lp_fast, head: learned_pooling, lr: 0.01}`, or
    `{name: adapter_96, pooler: {kind: adapter, width: 96}}`.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    pooler: PoolerConfig
    budget_of: str | None = None  # choose the pooler's width so that the head is as large as this one of the catalog
    readout: ReadoutKind = "linear"
    rank: int = Field(8, ge=1)  # of the term for pairs in a joint readout
    kind: Kind = "head"
    lr: float | None = Field(None, gt=0)  # None: heads.lr
    weight_decay: float | None = Field(None, ge=0)  # None: heads.optim.weight_decay

    @model_validator(mode="before")
    @classmethod
    def _from_catalog(cls, given: Any) -> Any:  # noqa: ANN401 (what the YAML holds)
        base = {"head": given} if isinstance(given, str) else given
        if not isinstance(base, dict) or "head" not in base:
            return base
        base = dict(base)
        name = base.pop("head")
        entry = CATALOG[known(name)]
        own = {
            "pooler": entry.pooler.model_dump(),
            "kind": entry.kind,
            "budget_of": entry.budget_of,
            "readout": entry.readout,
        }
        return {"name": name, **own, **base}

    @field_validator("name")
    @classmethod
    def _is_not_taken(cls, name: str) -> str:
        if name in ("encoder", ".", ".."):
            raise ValueError(f"{name!r} cannot be a head's name; choose another")
        return name

    @model_validator(mode="after")
    def _has_a_budget_it_can_meet(self) -> "HeadConfig":
        if self.budget_of is not None and "width" not in type(self.pooler).model_fields:
            raise ValueError(f"a pooler of kind {self.pooler.kind!r} has no width to choose; leave `budget_of` out")
        if self.budget_of is not None and CATALOG[known(self.budget_of)].budget_of is not None:
            raise ValueError(f"{self.budget_of!r} has another head's size itself; give that one as `budget_of`")
        return self


def build_head(config: HeadConfig, shape: StackShape, classes: int | None = None) -> Head:
    """Turn a config into a head that scores spans, or classes where their number is given."""
    task: TaskKind = "span" if classes is None else "class"
    if task not in (tasks := tasks_of(config.pooler, config.readout)):
        able = " or ".join(SCORED[each] for each in tasks) or "nothing"
        raise SettingsError(
            f"head {config.name!r} ({config.pooler.kind}, {config.readout} readout) scores {able}, "
            f"and this task needs {SCORED[task]}; choose another head"
        )
    pooler, features = build_pooler(_sized(config, shape, classes), shape)
    return Head(pooler, _build_readout(config, shape, features, classes))


def count_head(config: HeadConfig, shape: StackShape, classes: int | None = None) -> Count:
    """Count a head's parameters without making it."""
    with torch.device("meta"):  # shapes without memory
        return count_parameters(build_head(config, shape, classes))


def _build_readout(config: HeadConfig, shape: StackShape, features: int, classes: int | None) -> nn.Module:
    if classes is not None:
        return ClassReadout(features, classes)
    return JointReadout(features, shape, config.rank) if config.readout == "joint" else SpanReadout(features)


def _sized(config: HeadConfig, shape: StackShape, classes: int | None) -> AnyPooler:
    """Give the pooler's config with the width whose size comes nearest to the head that sets the budget."""
    if config.budget_of is None:
        return config.pooler
    budget = _size(HeadConfig.model_validate(config.budget_of), shape, classes)

    def sized(width: int) -> HeadConfig:
        pooler = config.pooler.model_copy(update={"width": width})
        return config.model_copy(update={"pooler": pooler, "budget_of": None})

    below, above = 1, 2
    while _size(sized(above), shape, classes) < budget:
        below, above = above, 2 * above
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if _size(sized(middle), shape, classes) < budget else (below, middle)
    return min(
        (sized(width) for width in (below, above)), key=lambda each: abs(_size(each, shape, classes) - budget)
    ).pooler


def _size(config: HeadConfig, shape: StackShape, classes: int | None) -> int:
    return count_head(config, shape, classes).trainable
