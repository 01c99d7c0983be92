"""What an experiment chooses of states: where heads get them from, and how they are kept."""

from typing import Any, Literal

from pydantic import field_validator, model_validator

from bertvision.model_config import Pooling
from bertvision.settings import Config
from bertvision.windows.step_plan import BatchConfig

SourceName = Literal["live", "ram", "disk"]
NumberFormat = Literal["bf16", "float32", "int8"]


class StatesConfig(Config):
    """Whether states are computed each time or kept, and how; in YAML a bare word is the source: `states: live`."""

    source: Literal["auto", "live", "ram", "disk"] = "auto"  # auto: what `bertvision plan` would choose
    batch: BatchConfig | None = None  # what the encoder runs on at once; None: what a head steps on (heads.batch)
    layers: Literal["all"] | tuple[int, ...] = "all"  # counted from 0, the embedding output
    # For rows: which one state per layer heads are given. auto: mean, or compared for pairs under a frozen encoder.
    pooling: Pooling | Literal["auto"] = "first"
    dtype: NumberFormat = "bf16"  # of kept states of all tokens; int8 has a scale per token and layer
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
    def chosen_pooling(self) -> Pooling:
        """Return the pooling; `auto` is resolved where the data are known (`fit_to_rows`)."""
        return "mean" if self.pooling == "auto" else self.pooling

    @property
    def chosen_layers(self) -> tuple[int, ...] | None:
        """Return the layers as `encode` takes them: None for all."""
        return None if self.layers == "all" else self.layers
