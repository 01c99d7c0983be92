"""Every head by name; turns a config into a module. To add one: a file, a config in `PoolerConfig`, a case, a row."""

from typing import Annotated, Any, Literal, NamedTuple, assert_never

from pydantic import Field, field_validator, model_validator
from torch import nn

from bertvision.heads.adapter import Adapter, AdapterConfig, width_of
from bertvision.heads.average_pooling import AveragePooling, AveragePoolingConfig
from bertvision.heads.head import Head
from bertvision.heads.last_state import LastState, LastStateConfig
from bertvision.heads.learned_pooling import LearnedPooling, LearnedPoolingConfig
from bertvision.heads.readouts import SpanReadout
from bertvision.settings import Config
from bertvision.shapes import StackShape

AnyPooler = LearnedPoolingConfig | AveragePoolingConfig | AdapterConfig | LastStateConfig
PoolerConfig = Annotated[AnyPooler, Field(discriminator="kind")]

# The papers' widths at BERT-large's hidden size 1,024, as shares of it: 386 and 64 there, 145 and 24 at 384.
WIDE, NARROW = 0.377, 0.0625


class Entry(NamedTuple):
    """A head of the catalog."""

    pooler: AnyPooler
    kind: Literal["head", "control"]
    about: str


CATALOG = {
    "learned_pooling": Entry(LearnedPoolingConfig(), "head", "a learned mix of all layers"),
    "average_pooling": Entry(AveragePoolingConfig(), "head", "mean of all layers"),
    "first_last_mean": Entry(AveragePoolingConfig(layers="first_and_last"), "head", "mean of first and last"),
    "adapter_64_shared": Entry(AdapterConfig(width=NARROW), "head", "narrow view of each layer"),
    "adapter_64_shared_skip": Entry(AdapterConfig(width=NARROW, skip=True), "head", "the same, and the last state"),
    "adapter_386_shared": Entry(AdapterConfig(width=WIDE), "head", "wide view of each layer"),
    "adapter_386_shared_skip": Entry(AdapterConfig(width=WIDE, skip=True), "head", "the same, and the last state"),
    "last_linear": Entry(LastStateConfig(), "control", "control: the last alone"),
}


class HeadConfig(Config):
    """A head of an experiment: a catalog name, or a mapping with a name of its own and a changed part.

    In YAML: `adapter_64_shared`, `{name: lp_fast, head: learned_pooling, lr: 0.01}`, or
    `{name: adapter_96, pooler: {kind: adapter, width: 96}}`.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    pooler: PoolerConfig
    kind: Literal["head", "control"] = "head"
    lr: float | None = Field(None, gt=0)  # None: heads.lr

    @model_validator(mode="before")
    @classmethod
    def _from_catalog(cls, given: Any) -> Any:  # noqa: ANN401 (what the YAML holds)
        base = {"head": given} if isinstance(given, str) else given
        if not isinstance(base, dict) or "head" not in base:
            return base
        base = dict(base)
        name = base.pop("head")
        if not isinstance(name, str) or name not in CATALOG:
            raise ValueError(f"no head {name!r} in the catalog; known: {', '.join(CATALOG)}")
        entry = CATALOG[name]
        return {"name": name, "pooler": entry.pooler.model_dump(), "kind": entry.kind, **base}

    @field_validator("name")
    @classmethod
    def _is_not_taken(cls, name: str) -> str:
        if name in ("encoder", ".", ".."):
            raise ValueError(f"{name!r} cannot be a head's name; choose another")
        return name


def build_head(config: HeadConfig, shape: StackShape) -> Head:
    """Turn a config into a head that scores spans."""
    pooler, features = build_pooler(config.pooler, shape)
    return Head(pooler, SpanReadout(features))


def build_pooler(config: AnyPooler, shape: StackShape) -> tuple[nn.Module, int]:
    """Turn a config into a module and its number of features: configs stop here, modules see plain numbers."""
    pooler: LearnedPooling | AveragePooling | Adapter | LastState
    match config:
        case LearnedPoolingConfig():
            pooler = LearnedPooling(shape.layers, shape.hidden)
        case AveragePoolingConfig(layers=layers):
            pooler = AveragePooling(shape.hidden, first_and_last=layers == "first_and_last")
        case AdapterConfig(width=width, skip=skip):
            pooler = Adapter(shape.layers, shape.hidden, width_of(width, shape.hidden), skip=skip)
        case LastStateConfig():
            pooler = LastState(shape.hidden)
        case _:
            assert_never(config)
    return pooler, pooler.features
