"""What a head is, which are trained, and how; apart from their modules, so that settings are checked without torch."""

from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from bertvision.errors import SettingsError
from bertvision.heads.catalog import CATALOG, RoleKind, known
from bertvision.heads.poolers.config import AnyPooler, LastDenseConfig, LastStateConfig, RegressionConfig
from bertvision.kinds.kind import Readout
from bertvision.settings import Config, validate
from bertvision.training.config import OptimConfig, SpanLoss, Start
from bertvision.windows.plan import BatchConfig

DEFAULT_HEADS = ("learned_pooling", "average_pooling", "adapter_386_shared_skip", "last_linear")
PoolerConfig = Annotated[AnyPooler, Field(discriminator="kind")]


class HeadConfig(Config):
    """A head of an experiment: a catalog name, or a mapping with a name of its own and a changed part.

    In YAML: `adapter_64_shared`, `{name: lp_fast, head: learned_pooling, lr: 0.01}`, or
    `{name: adapter_96, pooler: {kind: adapter, width: 96}}`.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    variant_of: str | None = None  # the head that this one tries another rate of; reports choose one of these
    pooler: PoolerConfig
    # Which of the states that heads are given it reads, from 0 on or from the end (-1: the last); None: all. One may
    # come several times.
    layers: tuple[int, ...] | None = Field(None, min_length=1)
    same_size_as: str | None = None  # choose the pooler's width so that the head is as large as this one of the catalog
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
            "same_size_as": entry.same_size_as,
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
        if self.same_size_as is not None and "width" not in type(self.pooler).model_fields:
            raise ValueError(f"a pooler of kind {self.pooler.kind!r} has no width to choose; leave `same_size_as` out")
        if self.same_size_as is not None and CATALOG[known(self.same_size_as)].same_size_as is not None:
            raise ValueError(f"{self.same_size_as!r} has another head's size itself; give that one as `same_size_as`")
        return self


class HeadsConfig(Config):
    """Which heads are trained and how."""

    train: tuple[HeadConfig, ...] = tuple(HeadConfig.model_validate(name) for name in DEFAULT_HEADS)
    baseline: bool = False  # whether the regression on the last state (last_regression) joins them
    data_fraction: float = Field(1.0, gt=0, le=1)  # of the training windows; the encoder is tuned on all of them
    epochs: int = Field(1, ge=1)
    min_steps: int = Field(0, ge=0)  # fewer rows get smaller batches, down to 8, and then more epochs
    keep_best: bool = False  # a head's best epoch counts: on held-out rows (data.held_out; without any: on dev)
    patience: int | None = Field(None, ge=1)  # epochs in which no head gets better until training stops; keeps the best
    batch: BatchConfig = BatchConfig(tokens=16384)
    lr: float = Field(1e-3, gt=0)
    optim: OptimConfig = OptimConfig()
    initial_bias: Start = "zero"  # of the readouts' biases
    loss: SpanLoss = "sum"
    save_every: float = Field(120.0, gt=0)  # seconds between savings from which a killed run goes on

    @model_validator(mode="after")
    def _fits_together(self) -> "HeadsConfig":
        names = [head.name for head in self.train]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two heads are called {min(repeated)!r}; give one of them another `name`")
        return self

    @property
    def keeps_best(self) -> bool:
        """Return whether each head's best epoch counts, not the last one."""
        return self.keep_best or self.patience is not None


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
