"""How an encoder is tuned: settings, which windows each step sees, and after which steps it is evaluated and kept."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from bertvision.settings import Config
from bertvision.training.config import OptimConfig, SpanLoss, Start, TeacherConfig
from bertvision.windows.plan import BatchConfig, Rows, lengths_of, plan_epoch
from bertvision.windows.window import Window

# A step's windows packed without padding, one shape for all steps; padded to few shapes; padded to the longest of them.
StepKind = Literal["packed", "bucketed", "eager"]


class FinetuneConfig(Config):
    """How the encoder is tuned; the defaults are those of the lab runs with small encoders."""

    # What is minimised: the task's own loss or, for few rows, that of cosines of pairs (encoder/contrastive.py).
    objective: Literal["task", "contrastive"] = "task"
    pairs_per_epoch: int = Field(500, ge=2)  # contrastive: of an epoch, half of them alike
    fractions: tuple[float, ...] = (0.3, 1.0)  # of an epoch, windows seen / windows; 0: untuned; empty: skip this stage
    batch: BatchConfig = BatchConfig(tokens=8192)
    min_steps: int = Field(0, ge=0)  # fewer rows get smaller batches, down to 8, and then more epochs
    min_rows: int = Field(0, ge=0)  # fewer rows leave the encoder as it is, and heads alone learn
    accumulate: int = Field(1, ge=1)  # batches in a step
    lr: float = Field(1e-4, gt=0)
    optim: OptimConfig = OptimConfig()
    loss: SpanLoss = "sum"
    dropout: float | None = Field(None, ge=0, lt=1)  # None: the encoder's own; 0 halves the time of a step on a CPU
    save_every: float = Field(120.0, gt=0)  # seconds between savings from which a killed run goes on
    # Epochs between two evaluations on held-out rows (data.held_out; without any: on dev), the fractions themselves
    # included; None: 1 where the best weights are kept, else never.
    evaluate_every: float | None = Field(None, gt=0)
    keep_best: bool = False  # a fraction's weights are those of the best evaluation until then, not the last ones
    patience: int | None = Field(None, ge=1)  # evaluations without a better score until training stops; keeps the best
    gradient_checkpointing: bool = False  # a block's inside is computed again in the backward pass: less memory
    # The output layer: a head of the catalog, or a mapping as in heads.train; None: a linear layer on the last state.
    head: str | dict[str, Any] | None = None
    initial_bias: Start = "zero"  # of the output layer's biases
    teacher: TeacherConfig | None = None  # a larger model to learn from beside the labels
    # How a GPU is kept busy: windows packed without padding, or padded to few lengths (each step is replayed as a CUDA
    # graph), or as they come; auto: the first of these that the encoder allows. A CPU takes them as they come.
    step_mode: StepKind | Literal["auto"] = "auto"

    @model_validator(mode="after")
    def _fractions_ascend(self) -> "FinetuneConfig":
        names = {f"{fraction:g}" for fraction in self.fractions}  # their folders
        ascend = list(self.fractions) == sorted(self.fractions) and len(names) == len(self.fractions)
        if not ascend or min(self.fractions, default=0) < 0:
            raise ValueError(f"`fractions` must ascend from 0 or more, each once, got {list(self.fractions)}")
        return self

    @model_validator(mode="after")
    def _replays_or_recomputes(self) -> "FinetuneConfig":
        if self.gradient_checkpointing and self.step_mode in ("packed", "bucketed"):
            raise ValueError(
                f"gradient_checkpointing does not go with step_mode: {self.step_mode}; use step_mode: auto or eager"
            )
        return self

    @model_validator(mode="after")
    def _contrasts_alone(self) -> "FinetuneConfig":
        if self.objective == "contrastive":
            unfit: dict[str, object] = {"head": self.head, "teacher": self.teacher, "keep_best": self.keep_best}
            unfit |= {"evaluate_every": self.evaluate_every, "patience": self.patience}
            if named := [name for name, given in unfit.items() if given]:
                raise ValueError(f"`{named[0]}` has no part in `objective: contrastive`; leave it out")
        return self

    @property
    def keeps_best(self) -> bool:
        """Return whether the best weights count, not the last ones."""
        return self.keep_best or self.patience is not None

    @property
    def horizon(self) -> float | None:
        """Return at which fraction the schedule ends, where checkpoints before it depend on that; else None."""
        return max(self.fractions, default=None) if self.optim.schedule == "linear" or self.optim.warmup else None


def plan_steps(windows: Sequence[Window], config: FinetuneConfig, seed: int, group: int = 1) -> list[list[Rows]]:
    """Decide which windows every step up to the last fraction sees; groups of neighbours stay together."""
    lengths, target = lengths_of(windows), num_windows_of(max(config.fractions, default=0.0), len(windows))
    steps: list[list[Rows]] = []
    seen, epoch = 0, 0
    while seen < target:
        batches = plan_epoch(lengths, config.batch, seed, epoch, group)
        for first in range(0, len(batches), config.accumulate):
            if seen >= target:
                break
            steps.append(batches[first : first + config.accumulate])
            seen += size_of(steps[-1])
        epoch += 1
    return steps


def num_windows_of(fraction: float, num_windows: int) -> int:
    """Return the windows to be seen for a fraction: at least one, unless it is 0."""
    return max(round(fraction * num_windows), 1 if fraction else 0)


def steps_of_fractions(
    fractions: Sequence[float], steps: Sequence[Sequence[Rows]], num_windows: int
) -> list[tuple[float, int]]:
    """Return, for each fraction, after how many steps its share of windows was first seen."""
    seen = np.cumsum([0, *map(size_of, steps)])
    return [(fraction, int(np.searchsorted(seen, num_windows_of(fraction, num_windows)))) for fraction in fractions]


def evaluation_steps(config: FinetuneConfig, steps: Sequence[Sequence[Rows]], num_windows: int) -> set[int]:
    """Return after which steps the encoder is evaluated."""
    every = config.evaluate_every or (1.0 if config.keeps_best else None)
    if every is None or not config.fractions:
        return set()
    regular = [every * (place + 1) for place in range(int(config.fractions[-1] / every + 1e-9))]
    found = steps_of_fractions([*regular, *config.fractions], steps, num_windows)
    return {step for _, step in found if step}


def size_of(step: Sequence[Rows]) -> int:
    """Count the windows of a step."""
    return sum(map(len, step))
