"""Where heads get their states from: the choice that an experiment makes."""

from typing import Any, Literal

from pydantic import field_validator, model_validator

from bertvision.settings import Config
from bertvision.windows.batches import BatchConfig

SourceName = Literal["live", "ram", "disk"]
NumberFormat = Literal["bf16", "float32", "int8"]


class StatesConfig(Config):
    """Whether states are computed each time or kept, and how; in YAML a bare word is the source: `states: live`."""

    source: Literal["auto", "live", "ram", "disk"] = "auto"  # auto: what `bertvision plan` would choose
    batch: BatchConfig | None = None  # what the encoder runs on at once; None: what a head steps on (heads.batch)
    layers: Literal["all"] | tuple[int, ...] = "all"  # counted from 0, the embedding output
    dtype: NumberFormat = "bf16"  # of kept states; int8 has a scale per token and layer
    folder: str | None = None  # of kept states; None: in the run folder
    keep: bool = False  # whether states in the run folder outlive the training of their heads

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

    @property
    def chosen_layers(self) -> tuple[int, ...] | None:
        """Give the layers as `encode` takes them: None for all."""
        return None if self.layers == "all" else self.layers
