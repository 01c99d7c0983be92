"""What is trained inside the encoder, as one setting."""

import re
from typing import Literal, NamedTuple, cast

from pydantic import Field, field_validator, model_validator

from bertvision.settings import Config

Train = Literal["all", "top", "bitfit", "none"]
Insert = Literal["houlsby", "pfeiffer", "lora", "lora-all"]

# Numbers have no leading zero, so that one setting has one spelling.
TRAIN = re.compile(r"(all|bitfit|none)|top:([1-9][0-9]*)")
SIZE = "[1-9][0-9]*"
INSERT = re.compile(rf"none|(houlsby|pfeiffer):{SIZE}|((houlsby|pfeiffer):{SIZE}\+)?lora(-all)?:{SIZE}")


class Trained(NamedTuple):
    """Which of the encoder's own weights are trained; `top` is 0 unless the kind is "top"."""

    kind: Train
    top: int


class Inserted(NamedTuple):
    """Something put into the encoder, and its inner width: a bottleneck's width or LoRA's rank."""

    kind: Insert
    width: int

    @property
    def is_lora(self) -> bool:
        """Return whether it is LoRA, on whichever layers."""
        return self.kind in ("lora", "lora-all")


class ParasiteConfig(Config):
    """Sizes of the parasites, which read earlier states and add one vector to a block's input (SPEC 10.1)."""

    width: int = Field(16, ge=1)
    states: int | Literal["all"] = 1  # how many of the states before a block are read
    length: int = Field(128, ge=1)  # the most tokens a row may have: every position has a weight
    lr: float | None = Field(None, gt=0)  # their own learning rate; None: the encoder's. The original: 1e-4 beside 2e-5

    @field_validator("states")
    @classmethod
    def _reads_something(cls, states: int | str) -> int | str:
        if isinstance(states, int) and states < 1:
            raise ValueError(f"expected 1 or more states, or all, got {states}")
        return states


class TuneConfig(Config):
    """What is trained inside the encoder: its own weights, what is inserted into it, and its layer norms.

    Hulburd's L12 is `train: all`, L6 is `train: top:6`, L0 is `train: none`, L0-A64 adds `insert: houlsby:64`.
    As published LoRA leaves the norms alone, and BitFit their gains (it trains their biases): `train_norms: false`.
    """

    train: str = "all"  # all (embeddings and pooler too), top:n blocks, bitfit (every bias) or none
    # houlsby:width, pfeiffer:width, lora:rank (on query and value), lora-all:rank (on every linear layer) or none;
    # adapters and LoRA together as in houlsby:64+lora-all:8
    insert: str = "none"
    train_norms: bool = True  # layer norms are trained even where their block is frozen
    parasites: ParasiteConfig | None = None
    frozen_fraction: float | None = Field(
        None, gt=0, lt=1
    )  # of the single weights trained otherwise, at random; None: 0

    @field_validator("train")
    @classmethod
    def _train_is_known(cls, train: str) -> str:
        if TRAIN.fullmatch(train) is None:
            raise ValueError(f"expected all, top:n (the top n blocks), bitfit or none, got {train!r}")
        return train

    @field_validator("insert")
    @classmethod
    def _insert_is_known(cls, insert: str) -> str:
        if INSERT.fullmatch(insert) is None:
            raise ValueError(
                f"expected houlsby:64, pfeiffer:64, lora:4, lora-all:4 (any width or rank), adapters and LoRA as in "
                f"houlsby:64+lora:4, or none, got {insert!r}"
            )
        return insert

    @field_validator("frozen_fraction", mode="before")
    @classmethod
    def _nothing_is_none(cls, given: object) -> object:
        return None if given == 0 else given

    @model_validator(mode="after")
    def _freezes_what_is_trained(self) -> "TuneConfig":
        if self.frozen_fraction and (self.inserted or self.parasites is not None):
            raise ValueError(
                "frozen_fraction is of the encoder's own weights; leave insert and parasites out beside it"
            )
        if self.frozen_fraction and self.trained.kind == "none" and not self.train_norms:
            raise ValueError(
                "frozen_fraction is of what is trained, and train: none with train_norms: false trains nothing"
            )
        return self

    @property
    def trained(self) -> Trained:
        """Read `train`."""
        kind, _, top = self.train.partition(":")
        return Trained(cast(Train, kind), int(top or 0))

    @property
    def rates(self) -> dict[str, float]:
        """Return the learning rates of weights that have one of their own, by a word of their names."""
        parasites = self.parasites
        return {"parasites": parasites.lr} if parasites is not None and parasites.lr is not None else {}

    @property
    def freezes_bottom(self) -> bool:
        """Return whether nothing below the trained blocks learns; what lies there runs without dropout."""
        is_plain = not self.inserted and self.parasites is None
        return self.trained.kind in ("top", "none") and not self.train_norms and is_plain

    @property
    def is_mergeable(self) -> bool:
        """Return whether it can become the encoder's own weights: all but adapters and parasites can."""
        return all(each.is_lora for each in self.inserted) and self.parasites is None

    @property
    def inserted(self) -> tuple[Inserted, ...]:
        """Read `insert`; empty where nothing is inserted."""
        pairs = (each.split(":") for each in self.insert.split("+") if each != "none")
        return tuple(Inserted(cast(Insert, kind), int(width)) for kind, width in pairs)
