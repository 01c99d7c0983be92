"""What an experiment chooses of states: where heads get them from, and which they are."""

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from bertvision.model_config import Pooling
from bertvision.settings import Config
from bertvision.windows.plan import BatchConfig

SourceName = Literal["live", "memory", "folder"]
GIB = 2**30


class StatesConfig(Config):
    """Where heads get an encoder's states from; in YAML a bare word is the source: `states: live`."""

    # live: computed in every pass; memory: computed once; auto: memory where all of them fit into `memory`, else live.
    source: Literal["auto", "live", "memory"] = "auto"
    folder: str | None = None  # read them from here instead, where `encode` wrote them
    memory: float = Field(4.0, gt=0)  # GiB that `auto` may keep; a fixed number, so that no result depends on a machine
    batch: BatchConfig | None = None  # what the encoder runs on at once; None: what a head steps on (heads.batch)
    layers: Literal["all"] | tuple[int, ...] = "all"  # counted from 0, the embedding output
    # For rows: which one state per layer heads read. auto: mean, or pair_difference for pairs on a frozen encoder.
    pooling: Pooling | Literal["auto"] = "first"

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, given: Any) -> Any:  # noqa: ANN401 (what the YAML holds)
        return {"source": given} if isinstance(given, str) else given

    @field_validator("layers", mode="before")
    @classmethod
    def _ascend(cls, given: Any) -> Any:  # noqa: ANN401 (what the YAML holds)
        if given == "all":
            return given
        numbers = list(given) if isinstance(given, list | tuple) else []
        if not numbers or any(type(each) is not int or each < 0 for each in numbers) or numbers != sorted(set(numbers)):
            raise ValueError(f"must be `all` or ascend from 0 or more, each once, such as [0, 6, 12], got {given!r}")
        return tuple(numbers)

    @model_validator(mode="after")
    def _has_one_source(self) -> "StatesConfig":
        if self.folder is not None and self.source != "auto":
            raise ValueError(f"`source: {self.source}` does not go with `folder`; give one of them")
        return self

    @property
    def chosen_pooling(self) -> Pooling:
        """Return the pooling; `auto` is resolved where the data are known (`fit_to_rows`)."""
        return "mean" if self.pooling == "auto" else self.pooling

    @property
    def chosen_layers(self) -> tuple[int, ...] | None:
        """Return the layers as `encode` takes them: None for all."""
        return None if self.layers == "all" else self.layers
