"""What `bertvision search` may vary, and with which values: the `search` section of an experiment."""

import re
from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from bertvision.heads.catalog import serves
from bertvision.heads.config import HeadConfig, is_regression
from bertvision.kinds.kind import Kind, Readout
from bertvision.settings import Config

Subject = Literal["heads", "finetune"]
Value = bool | int | float | str
# Of a head trial: decides the order of the windows, so all that learn from the same pass share it.
SHARED = "seed"
# Heads that learn side by side in one computation, two new ones, and the control.
HEADS: tuple[str, ...] = ("learned_pooling", "average_pooling", "adapter_64_shared_skip", "adapter_64_unshared_skip")
HEADS += ("mix4", "layer_attention", "last_linear")
LAYERS = re.compile(r"all|(last|every):[1-9][0-9]*|[0-9]+(,[0-9]+)*")


class Range(Config):
    """Values between two bounds, drawn on a logarithmic scale; `width` takes whole ones."""

    low: float = Field(gt=0)
    high: float = Field(gt=0)

    @model_validator(mode="after")
    def _ascends(self) -> "Range":
        if self.low >= self.high:
            raise ValueError(f"`low` is {self.low:g} and `high` {self.high:g}; give the smaller one as `low`")
        return self


def _form(given: object) -> str:
    return "range" if isinstance(given, dict | Range) else "list"


_Range = Annotated[Range, Tag("range")]
Floats = Annotated[Annotated[tuple[float, ...], Tag("list"), Field(min_length=1)] | _Range, Discriminator(_form)]
Widths = Annotated[
    Annotated[tuple[Annotated[int, Field(ge=1)], ...], Tag("list"), Field(min_length=1)] | _Range, Discriminator(_form)
]


class SearchConfig(Config):
    """What is searched: lists of values, or {low, high}; None: the default of what is searched."""

    target: Subject = "heads"  # heads on the encoder as the experiment leaves it | its fine-tuning
    trials: int | None = Field(None, ge=1)  # in all, those of earlier commands included; None: 48, or the whole grid
    minutes: float | None = Field(None, gt=0)  # after which no further pass begins; None: no limit
    group_size: int = Field(8, ge=1)  # head trials that learn from one pass over the states
    sampler: Literal["tpe", "grid"] = "tpe"
    head: tuple[HeadConfig, ...] | None = Field(None, min_length=1)  # as in heads.train
    lr: Floats | None = None
    weight_decay: tuple[float, ...] | None = Field(None, min_length=1)
    width: Widths | None = None  # of the poolers that have one
    dropout: tuple[float, ...] | None = Field(None, min_length=1)
    readout: tuple[Readout, ...] | None = Field(None, min_length=1)
    layers: tuple[str, ...] | None = Field(None, min_length=1)  # all, last:n, every:n, or numbers: "0,6,12"
    batch: tuple[int, ...] | None = Field(None, min_length=1)  # windows of a step
    epochs: tuple[int, ...] | None = Field(None, min_length=1)
    seed: tuple[int, ...] | None = Field(None, min_length=1)  # None: those of the experiment

    @field_validator("layers", mode="before")
    @classmethod
    def _as_words(cls, given: Any) -> Any:  # noqa: ANN401 (what the YAML holds)
        """Write lists of layers as words, which a study can hold."""
        if not isinstance(given, list):
            return given
        words = [",".join(map(str, each)) if isinstance(each, list) else str(each) for each in given]
        if wrong := [word for word in words if not LAYERS.fullmatch(word)]:
            raise ValueError(f"expected all, last:4, every:2 or a list such as [0, 6, 12], got {wrong[0]!r}")
        return tuple(words)

    @model_validator(mode="after")
    def _fits_together(self) -> "SearchConfig":
        other: Subject = "finetune" if self.target == "heads" else "heads"
        unfit = [name for name in ONLY[other] if name not in ONLY[self.target] and getattr(self, name) is not None]
        if unfit:
            raise ValueError(
                f"`{unfit[0]}` is searched with `of: {other}`, and this is `of: {self.target}`; leave it out"
            )
        ranges = [name for name in ("lr", "width") if isinstance(getattr(self, name), Range)]
        if self.sampler == "grid" and ranges:
            raise ValueError(f"`sampler: grid` tries every value, and `{ranges[0]}` is a range; give a list")
        fitted = [head.name for head in self.head or () if is_regression(head)]
        if fitted:
            raise ValueError(f"head {fitted[0]!r} is fitted at once and has nothing to search; leave it out")
        return self


ONLY: dict[Subject, tuple[str, ...]] = {
    "heads": ("head", "lr", "weight_decay", "width", "dropout", "readout", "layers", "seed"),
    "finetune": ("lr", "batch", "epochs", "dropout", "seed"),
}


class Space(NamedTuple):
    """Every parameter with its values; one that has a single value is no choice."""

    of: Subject
    values: dict[str, tuple[Value, ...] | Range]
    heads: dict[str, HeadConfig]  # by the names that the parameter `head` takes

    @property
    def choices(self) -> dict[str, tuple[Value, ...] | Range]:
        """Return the parameters that are searched."""
        return {name: each for name, each in self.values.items() if isinstance(each, Range) or len(each) > 1}

    @property
    def fixed(self) -> dict[str, Value]:
        """Return the parameters that have one value."""
        return {name: each[0] for name, each in self.values.items() if not isinstance(each, Range) and len(each) == 1}

    def has(self, name: str, head: Value) -> bool:
        """Whether trials of a head have a parameter: only some poolers have a width."""
        return name != "width" or "width" in type(self.heads[str(head)].pooler).model_fields

    @property
    def size(self) -> int:
        """Count the points of a grid."""
        return prod(len(each) for each in self.values.values() if not isinstance(each, Range))

    def grid(self) -> list[dict[str, Value]]:
        """Return every point of a grid; neighbours share the seed."""
        lists = {name: each for name, each in self.choices.items() if not isinstance(each, Range)}
        names = sorted(lists, key=lambda name: name != SHARED)
        return [dict(zip(names, point, strict=True)) for point in product(*(lists[name] for name in names))]

    def as_dict(self) -> dict[str, Any]:
        """Return the values for a record."""
        return {
            name: each.model_dump() if isinstance(each, Range) else list(each) for name, each in self.values.items()
        }


def space_of(config: SearchConfig, kind: Kind, seeds: Sequence[int]) -> Space:
    """Return what is searched for a kind of task, defaults filled in; refuse heads that do not serve it."""
    heads = config.head or _default_heads(kind)
    defaults = _default_values(config.target, kind, seeds)
    given = {name: getattr(config, name) for name in defaults if name != "head"}
    values = {name: defaults[name] if each is None else each for name, each in given.items()}
    values = {name: each for name, each in values.items() if each != ()}
    if config.target == "finetune":
        return Space(config.target, values, {})
    pairs = [(head, readout) for head in heads for readout in values["readout"]]
    if unfit := [f"{head.name!r} with readout {word}" for head, word in pairs if not serves(head.pooler, word, kind)]:
        raise ValueError(f"head {unfit[0]} is not for tasks of the kind {kind}; leave it out of `search`")
    by_name = {head.name: head for head in heads}
    return Space(config.target, {"head": tuple(by_name), **values}, by_name)


def layers_of(word: str, states: int) -> tuple[int, ...] | None:
    """Return which of the layers 0 to `states` - 1 a word names; None: all."""
    rule, _, number = word.partition(":")
    match rule:
        case "all":
            return None
        case "last":
            return tuple(range(states))[-int(number) :]
        case "every":  # counted down from the last
            return tuple(range(states))[:: -int(number)][::-1]
        case _:
            return tuple(sorted({int(each) for each in word.split(",")}))


def _default_heads(kind: Kind) -> tuple[HeadConfig, ...]:
    heads = [HeadConfig.model_validate(name) for name in HEADS]
    return tuple(head for head in heads if serves(head.pooler, "linear", kind))


def _default_values(of: Subject, kind: Kind, seeds: Sequence[int]) -> dict[str, Any]:
    """Return values that suit most data; of fine-tuning the grid of BERT's paper (Devlin et al. 2019, A.3 and 4.1)."""
    if of == "finetune":
        return {
            "lr": (5e-5, 4e-5, 3e-5, 2e-5),
            "batch": (16, 32),
            "epochs": (2, 3, 4),
            "dropout": (),
            "seed": tuple(seeds),
        }
    return {
        "lr": Range(low=1e-4, high=3e-2),
        "weight_decay": (0.0, 0.01, 0.1),
        "width": Range(low=8, high=256),
        "dropout": (0.0, 0.1, 0.3),
        "readout": ("linear", "joint") if "joint" in kind.readouts else ("linear",),
        "layers": ("all", "last:4", "every:2"),
        "seed": tuple(seeds),
    }
