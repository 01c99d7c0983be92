"""Every head by name; turns a config into a module. To add one: a file, a config in `AnyPooler`, a case, a row."""

from typing import Annotated, Any, Literal, NamedTuple, assert_never

import torch
from pydantic import Field, field_validator, model_validator
from torch import nn

from bertvision.errors import SettingsError
from bertvision.heads.head import Head, count_parameters
from bertvision.heads.poolers.adapter import Adapter, AdapterConfig
from bertvision.heads.poolers.average_pooling import AveragePooling, AveragePoolingConfig
from bertvision.heads.poolers.last_state import LastState, LastStateConfig
from bertvision.heads.poolers.learned_pooling import LearnedPooling, LearnedPoolingConfig
from bertvision.heads.poolers.mixed_adapter import MixedAdapter, MixedAdapterConfig
from bertvision.heads.poolers.pooler import TaskKind, width_of
from bertvision.heads.poolers.two_adapters import TwoAdapters, TwoAdaptersConfig
from bertvision.heads.readouts import ClassReadout, SpanReadout
from bertvision.settings import Config
from bertvision.shapes import StackShape

AnyPooler = (
    LearnedPoolingConfig
    | AveragePoolingConfig
    | AdapterConfig
    | MixedAdapterConfig
    | TwoAdaptersConfig
    | LastStateConfig
)
PoolerConfig = Annotated[AnyPooler, Field(discriminator="kind")]

Kind = Literal["head", "control"]
# Where a head comes from: the 2020 papers, a reconstruction of one that is lost, the 2021 code, Hulburd's study, here.
Origin = Literal["2020", "reconstructed", "2021", "hulburd", "new", "control"]

# The papers' widths at BERT-large's hidden size 1,024, as shares of it: 386 and 64 there, 145 and 24 at 384.
WIDE, NARROW = 0.377, 0.0625
BUDGET = "adapter_386_shared_skip"  # the head whose size the controls and the new heads are given


class Entry(NamedTuple):
    """A head of the catalog."""

    origin: Origin
    pooler: AnyPooler
    about: str
    budget_of: str | None = None  # the head whose number of parameters decides this one's width

    @property
    def kind(self) -> Kind:
        """Tell heads from controls."""
        return "control" if self.origin == "control" else "head"


CATALOG = {
    "learned_pooling": Entry("2020", LearnedPoolingConfig(), "a learned mix of all layers; on classes 'tenney small'"),
    "average_pooling": Entry("2020", AveragePoolingConfig(), "mean of all layers"),
    "first_last_mean": Entry("2020", AveragePoolingConfig(layers="first_and_last"), "mean of first and last"),
    "adapter_64_shared": Entry("2020", AdapterConfig(width=NARROW), "narrow view of each layer"),
    "adapter_64_shared_skip": Entry("2020", AdapterConfig(width=NARROW, skip=True), "the same, and the last state"),
    "adapter_64_unshared": Entry("2020", AdapterConfig(width=NARROW, shared=False), "a narrow view per layer"),
    "adapter_64_unshared_skip": Entry(
        "2020", AdapterConfig(width=NARROW, shared=False, skip=True), "the same, and the last state"
    ),
    "adapter_386_shared": Entry("2020", AdapterConfig(width=WIDE), "wide view of each layer"),
    "adapter_386_shared_skip": Entry("2020", AdapterConfig(width=WIDE, skip=True), "the same, and the last state"),
    "adapter_386_unshared": Entry("2020", AdapterConfig(width=WIDE, shared=False), "a wide view per layer"),
    "adapter_386_unshared_skip": Entry(
        "2020", AdapterConfig(width=WIDE, shared=False, skip=True), "the same, and the last state"
    ),
    "lp_adapter_386": Entry("2020", MixedAdapterConfig(width=WIDE), "wide view of a learned mix"),
    "lp_adapter_386_skip": Entry(
        "2020",
        MixedAdapterConfig(width=WIDE, skip=True),
        "the same, and the last state; on classes 'adapter pooler tenney'",
    ),
    "ap_adapter_386_skip": Entry(
        "2020",
        MixedAdapterConfig(mix="average", width=WIDE, skip=True),
        "wide view of the mean, and the last state; on classes 'adapter pooler avg'",
    ),
    "two_adapters_386": Entry("2020", TwoAdaptersConfig(width=WIDE), "of each layer and of a mix: 'skip Tenney'"),
    "ap_squad": Entry("2021", AdapterConfig(width=384, gelu="none"), "wide view of each layer, as wide as a window"),
    "last_linear": Entry("control", LastStateConfig(), "control: the last state alone"),
    "last_adapter": Entry(
        "control", MixedAdapterConfig(mix="last"), "control: an adapter on the last state alone", BUDGET
    ),
}


class HeadConfig(Config):
    """A head of an experiment: a catalog name, or a mapping with a name of its own and a changed part.

    In YAML: `adapter_64_shared`, `{name: lp_fast, head: learned_pooling, lr: 0.01}`, or
    `{name: adapter_96, pooler: {kind: adapter, width: 96}}`.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    pooler: PoolerConfig
    budget_of: str | None = None  # choose the pooler's width so that the head is as large as this one of the catalog
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
        entry = CATALOG[_known(name)]
        own = {"pooler": entry.pooler.model_dump(), "kind": entry.kind, "budget_of": entry.budget_of}
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
        if self.budget_of is not None and CATALOG[_known(self.budget_of)].budget_of is not None:
            raise ValueError(f"{self.budget_of!r} has another head's size itself; give that one as `budget_of`")
        return self


def build_head(config: HeadConfig, shape: StackShape, classes: int | None = None) -> Head:
    """Turn a config into a head that scores spans, or classes where their number is given."""
    task: TaskKind = "span" if classes is None else "class"
    if task not in config.pooler.tasks:
        raise SettingsError(f"head {config.name!r} ({config.pooler.kind}) reads {config.pooler.tasks[0]}es alone")
    pooler, features = build_pooler(_sized(config, shape, classes), shape)
    return Head(pooler, SpanReadout(features) if classes is None else ClassReadout(features, classes))


def build_pooler(config: AnyPooler, shape: StackShape) -> tuple[nn.Module, int]:
    """Turn a config into a module and its number of features: configs stop here, modules see plain numbers."""
    layers, hidden = shape
    pooler: LearnedPooling | AveragePooling | Adapter | MixedAdapter | TwoAdapters | LastState
    match config:
        case LearnedPoolingConfig():
            pooler = LearnedPooling(layers, hidden)
        case AveragePoolingConfig(layers=averaged):
            pooler = AveragePooling(hidden, first_and_last=averaged == "first_and_last")
        case AdapterConfig(width=width, shared=shared, skip=skip, gelu=gelu):
            pooler = Adapter(layers, hidden, width_of(width, hidden), shared=shared, skip=skip, gelu=gelu)
        case MixedAdapterConfig(mix=mix, width=width, skip=skip):
            pooler = MixedAdapter(shape, mix, width_of(width, hidden), skip=skip)
        case TwoAdaptersConfig(width=width):
            pooler = TwoAdapters(shape, width_of(width, hidden))
        case LastStateConfig():
            pooler = LastState(hidden)
        case _:
            assert_never(config)
    return pooler, pooler.features


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
    with torch.device("meta"):  # shapes without memory
        return count_parameters(build_head(config, shape, classes)).trainable


def _known(name: object) -> str:
    if not isinstance(name, str) or name not in CATALOG:
        raise ValueError(f"no head {name!r} in the catalog; known: {', '.join(CATALOG)}")
    return name
