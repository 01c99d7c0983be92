"""A loaded model, ready to be asked any number of times."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertvision.encoder.encode import freeze
from bertvision.features.windows import Window
from bertvision.predictions.logits import Logits
from bertvision.serving.calibration import Calibration, read_calibration
from bertvision.stages.answering import Answering, open_answering
from bertvision.stages.logits import logits_of
from bertvision.stages.model_folder import Model, ModelConfig, load_model
from bertvision.tasks.catalog import TASKS
from bertvision.tasks.task import Kind, Split, Task
from bertvision.training.device import Compute


@dataclass(frozen=True)
class ServedModel:
    """An encoder with its head on their device, where they came from, and how they were calibrated."""

    folder: Path
    model: Model
    compute: Compute
    calibration: Calibration

    @property
    def config(self) -> ModelConfig:
        """Give the model's settings."""
        return self.model.config

    @property
    def kind(self) -> Kind:
        """Tell what is asked of a text."""
        return TASKS[self.config.task].kind

    def logits(self, windows: Sequence[Window]) -> Logits:
        """Run the model over windows, in batches of like lengths."""
        heads, per, tokens = {"model": self.model.head}, self.config.objective.per, self.config.answers.tokens
        return logits_of(self.model.encoder, heads, windows, per, self.compute, tokens=tokens)["model"]

    def answering(self, examples: Sequence[Any]) -> Answering:
        """Cut examples, and get them ready to be answered."""
        split: Split[Any] = Split("given", tuple(examples), 0, None)
        task = Task(self.config.task, self.kind, split, split, self.config.labels)
        return open_answering(task, split, self.model.encoder.tokenizer, self.config.windows, self.config.answers)


def open_model(folder: Path, compute: Compute) -> ServedModel:
    """Load a MODEL_DIR for good: no gradients, no dropout."""
    model = load_model(folder)
    freeze(model.encoder, compute)
    return ServedModel(folder, model, compute, read_calibration(folder, model.config))
