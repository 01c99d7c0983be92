"""A head's config, and the head that it describes."""

from typing import Annotated, Any

import torch
from pydantic import Field, field_validator, model_validator
from torch import nn

from bertvision.encoder.pooling import Pooling
from bertvision.errors import SettingsError
from bertvision.heads.catalog import CATALOG, RoleKind, kinds_of, known, reads_one_state, serves
from bertvision.heads.head import Count, Head, count_parameters
from bertvision.heads.poolers.build import AnyPooler, build_pooler
from bertvision.heads.poolers.mixes import LastDenseConfig, LastStateConfig, RegressionConfig
from bertvision.heads.readouts import (
    BILSTM_WIDTH,
    BiLstmReadout,
    BiLstmRowReadout,
    ClassReadout,
    JointReadout,
    NullOffsetReadout,
    SpanReadout,
    TagReadout,
)
from bertvision.kinds.facts import Readout
from bertvision.settings import Config, validate
from bertvision.shapes import StackShape
from bertvision.training.objective import SPANS, Objective

PoolerConfig = Annotated[AnyPooler, Field(discriminator="kind")]


class HeadConfig(Config):
    """A head of an experiment: a catalog name, or a mapping with a name of its own and a changed part.

    In YAML: `adapter_64_shared`, `{name: lp_fast, head: learned_pooling, lr: 0.01}`, or
    `{name: adapter_96, pooler: {kind: adapter, width: 96}}`.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    setting_of: str | None = None  # the head that this one tries another setting of (`heads.settings`)
    pooler: PoolerConfig
    # Which of the states that heads are given it reads, from 0 on or from the end (-1: the last); None: all. One may
    # come several times.
    layers: tuple[int, ...] | None = Field(None, min_length=1)
    budget_of: str | None = None  # choose the pooler's width so that the head is as large as this one of the catalog
    readout: Readout = "linear"
    rank: int = Field(8, ge=1)  # of the term for pairs in a joint readout
    readout_width: int | None = Field(None, ge=1)  # of each direction of a bilstm readout; None: 384
    dropout: float | None = Field(None, gt=0, lt=1)  # of what the readout sees, in training; None: none
    kind: RoleKind = "head"
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

    @field_validator("layers", mode="before")
    @classmethod
    def _from_list(cls, given: Any) -> Any:  # noqa: ANN401 (what the YAML holds)
        return tuple(given) if isinstance(given, list) else given

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


def output_head(given: str | dict[str, Any] | None) -> HeadConfig:
    """Describe the layer that is tuned together with an encoder (`finetune.head`): by default it reads the last state.

    It is the same kind of thing as any head, but learns at the encoder's rate.
    """
    mapping = given if isinstance(given, dict) else {"head": given or "last_linear"}
    head = validate(HeadConfig, {**mapping, "name": "output"}, "finetune.head")
    if reads_output_layer(head):
        raise SettingsError(f"finetune.head: a readout {head.readout} corrects an output layer; choose another head")
    if head.lr is not None or head.weight_decay is not None:
        raise SettingsError("finetune.head: it learns with the encoder; set finetune.lr and finetune.optim instead")
    return head


def reads_last_alone(config: HeadConfig) -> bool:
    """Return whether a head reads the last state and no other, so that the others need not be gathered."""
    if config.layers is not None:
        return False
    is_last = (
        isinstance(config.pooler, LastStateConfig | LastDenseConfig) or getattr(config.pooler, "mix", None) == "last"
    )
    return is_last and config.readout != "joint"


def reads_output_layer(config: HeadConfig) -> bool:
    """Return whether a head corrects the scores of the encoder's own output layer, which it has to be given."""
    return config.readout in ("null_offset", "null_offset_scale")


def is_regression(config: HeadConfig) -> bool:
    """Return whether a head is fitted at once (`heads/regression.py`) and takes no steps."""
    return isinstance(config.pooler, RegressionConfig)


def pooling_of(config: HeadConfig, objective: Objective, pooling: Pooling = "first") -> Pooling | None:
    """Return the `pooling` of a head that reads one state per layer (`encode_pooled`); None: it reads all tokens."""
    return pooling if objective.per == "row" and reads_one_state(config.pooler, config.readout) else None


def build_head(config: HeadConfig, shape: StackShape, objective: Objective = SPANS, pooling: Pooling = "first") -> Head:
    """Turn a config into a head that gives what an objective asks for; `pooling` is that of one state per layer."""
    if not serves(config.pooler, config.readout, objective.kind):
        kinds = kinds_of(config.pooler, config.readout)
        raise SettingsError(
            f"head {config.name!r} ({config.pooler.kind}, {config.readout} readout) is for tasks of the kind "
            f"{', '.join(kinds) or '(none)'}, and this one is of the kind {objective.kind}; choose another head"
        )
    chosen = _own_places(config, shape)
    own = shape if chosen is None else StackShape(len(chosen), shape.hidden)
    pooler, features = build_pooler(_sized(config, shape, objective), own)
    head = Head(pooler, _build_readout(config, own, features, objective), config.dropout, chosen)
    head.pooling = pooling_of(config, objective, pooling)
    return head


def count_head(config: HeadConfig, shape: StackShape, objective: Objective = SPANS) -> Count:
    """Count a head's parameters without making it."""
    with torch.device("meta"):  # shapes without memory
        return count_parameters(build_head(config, shape, objective))


def _own_places(config: HeadConfig, shape: StackShape) -> tuple[int, ...] | None:
    """Return which of the states that a head is given it reads, from 0 on; None: all."""
    if config.layers is None:
        return None
    if odd := [layer for layer in config.layers if not -shape.layers <= layer < shape.layers]:
        raise SettingsError(
            f"head {config.name!r}: layers names {odd[0]}, and there are the states 0 to {shape.layers - 1}; "
            "leave it out"
        )
    return tuple(layer % shape.layers for layer in config.layers)


def _build_readout(config: HeadConfig, shape: StackShape, features: int, objective: Objective) -> nn.Module:
    width = config.readout_width or BILSTM_WIDTH
    if objective.per == "row":
        columns, unit = objective.columns, objective.unit
        if config.readout == "bilstm":
            return BiLstmRowReadout(features, width, columns, unit)
        return ClassReadout(features, columns, unit)
    over_tokens = objective.kind.softmax == "tokens"
    match config.readout:
        case "joint":
            return JointReadout(features, shape, config.rank)
        case "bilstm":
            return BiLstmReadout(features, width, objective.columns, spans=over_tokens)
        case "null_offset" | "null_offset_scale":
            return NullOffsetReadout(features, scaled=config.readout == "null_offset_scale")
        case "linear":
            return SpanReadout(features) if over_tokens else TagReadout(features, objective.columns)


def _sized(config: HeadConfig, shape: StackShape, objective: Objective) -> AnyPooler:
    """Return the pooler's config with the width whose size comes nearest to the head that sets the budget."""
    if config.budget_of is None:
        return config.pooler
    budget = _size(HeadConfig.model_validate(config.budget_of), shape, objective)

    def sized(width: int) -> HeadConfig:
        pooler = config.pooler.model_copy(update={"width": width})
        return config.model_copy(update={"pooler": pooler, "budget_of": None})

    below, above = 1, 2
    while _size(sized(above), shape, objective) < budget:
        below, above = above, 2 * above
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if _size(sized(middle), shape, objective) < budget else (below, middle)
    return min(
        (sized(width) for width in (below, above)), key=lambda each: abs(_size(each, shape, objective) - budget)
    ).pooler


def _size(config: HeadConfig, shape: StackShape, objective: Objective) -> int:
    return count_head(config, shape, objective).trainable
