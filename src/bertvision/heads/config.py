"""Which heads are trained, and how; apart from their training, so that settings are checked without transformers."""

from typing import Any

from pydantic import Field, model_validator

from bertvision.errors import SettingsError
from bertvision.heads.build import HeadConfig
from bertvision.settings import Config
from bertvision.training.losses import SpanLoss
from bertvision.training.objective import Start
from bertvision.training.optim import OptimConfig
from bertvision.windows.batches import BatchConfig

DEFAULT_HEADS = ("learned_pooling", "average_pooling", "adapter_386_shared_skip", "last_linear")


class HeadsConfig(Config):
    """Which heads are trained and how; an experiment's file may also list `settings` (see `with_every_setting`)."""

    train: tuple[HeadConfig, ...] = tuple(HeadConfig.model_validate(name) for name in DEFAULT_HEADS)
    baseline: bool = False  # whether the regression on the last state (last_regression) joins them
    share: float = Field(1.0, gt=0, le=1)  # of the training windows; the encoder is tuned on all of them
    epochs: int = Field(1, ge=1)
    min_steps: int = Field(0, ge=0)  # fewer rows get smaller batches, down to 8, and then more epochs
    report_epoch: int | None = Field(None, ge=1)  # the epoch that counts, fixed beforehand; None: the last
    keep_best: bool = False  # a head's best epoch counts: on held-out rows (data.held_out; without any: on dev)
    patience: int | None = Field(None, ge=1)  # epochs in which no head gets better until training stops; keeps the best
    batch: BatchConfig = BatchConfig(tokens=16384)
    lr: float = Field(1e-3, gt=0)
    optim: OptimConfig = OptimConfig()
    start: Start = "zero"  # of the readouts' biases
    loss: SpanLoss = "sum"
    save_every: float = Field(120.0, gt=0)  # seconds between savings from which a killed run goes on

    @model_validator(mode="after")
    def _fits_together(self) -> "HeadsConfig":
        names = [head.name for head in self.train]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two heads are called {min(repeated)!r}; give one of them another `name`")
        if self.report_epoch is not None and self.report_epoch > self.epochs:
            raise ValueError(f"report_epoch is {self.report_epoch}, but there are {self.epochs} epochs")
        if self.report_epoch is not None and self.keeps_best:
            raise ValueError("report_epoch fixes an epoch, and keep_best or patience choose one; leave one of them out")
        return self

    @property
    def keeps_best(self) -> bool:
        """Return whether each head's best epoch counts, not one that is the same for all."""
        return self.keep_best or self.patience is not None

    @property
    def reported(self) -> int:
        """Return which epoch's weights and scores count."""
        return self.report_epoch or self.epochs


def with_every_setting(heads: Any) -> Any:  # noqa: ANN401 (what the YAML holds)
    """Replace `settings`, a list of mappings with `lr` or `weight_decay`, by heads: each once with every setting."""
    if not isinstance(heads, dict) or "settings" not in heads:
        return heads
    settings = heads["settings"]
    if not isinstance(settings, list) or not all(isinstance(each, dict) and each for each in settings):
        raise SettingsError("`heads.settings` is a list of mappings, such as [{lr: 0.001}, {lr: 0.003}]")
    train = heads.get("train", list(DEFAULT_HEADS))
    every = [_variant(head, setting) for head in train for setting in settings]
    return {**{key: value for key, value in heads.items() if key != "settings"}, "train": every}


def _variant(head: Any, setting: dict[str, Any]) -> Any:  # noqa: ANN401 (what the YAML holds)
    """Return a head with other settings and a name that tells them."""
    own = {"head": head, "name": head} if isinstance(head, str) else dict(head)
    told = "-".join(f"{key}{value}" for key, value in setting.items())
    name = own.get("name", own.get("head"))
    return {**own, **setting, "name": f"{name}-{told}", "setting_of": name}
