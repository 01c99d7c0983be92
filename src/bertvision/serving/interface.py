"""What a reader, classifier or tagger asks of the model behind it; no torch in here."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from bertvision.data.example import Split
from bertvision.kinds.kind import Answering, Kind
from bertvision.model_config import Calibration, UseConfig
from bertvision.predictions.logits import Logits
from bertvision.progress import SILENT, Progress
from bertvision.records import RunRecord
from bertvision.tasks import TASKS, Task, open_answering
from bertvision.windows.window import Window


class Served(ABC):
    """A loaded model, whatever runs it."""

    folder: Path
    calibration: Calibration

    @property
    @abstractmethod
    def config(self) -> UseConfig:
        """Give the model's settings."""

    @property
    @abstractmethod
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Give what cuts texts into the encoder's tokens."""

    @abstractmethod
    def logits(self, windows: Sequence[Window], progress: Progress = SILENT) -> Logits:
        """Run the model over windows, in batches of like lengths: [token, column] or [window, column]."""

    @abstractmethod
    def write(self, folder: Path, records: Sequence[RunRecord] | None, changes_of: str | None) -> None:
        """Write all of the model into a folder, as `Saveable.save_pretrained` promises."""

    @property
    def kind(self) -> Kind:
        """Tell what is asked of a text."""
        return TASKS[self.config.task].kind

    def answering(self, examples: Sequence[Any]) -> Answering:
        """Cut examples, and get them ready to be answered."""
        split: Split[Any] = Split("given", tuple(examples), 0, None)
        task = Task(self.config.task, split, split, self.config.labels)
        return open_answering(task, split, self.tokenizer, self.config.windows, self.config.answers)
