"""What one must know of a model to use it, whatever runs it; no torch in here."""

from typing import Literal

from bertvision.features.windows import WindowConfig
from bertvision.predictions.prediction import AnswerConfig
from bertvision.settings import Config
from bertvision.tasks.task import DataConfig, TaskName

CONFIG = "model.json"
ONNX_FORMAT: Literal["onnx-1"] = "onnx-1"  # where a whole number stands in a MODEL_DIR's config


class UseConfig(Config):
    """The base of models' configs: what they were trained for, how texts are cut and logits become answers."""

    encoder_fingerprint: str
    task: TaskName
    labels: tuple[str, ...] = ()  # names of its classes, labels or tags, by number
    data: DataConfig = DataConfig()  # how the tables that it learned from are laid out
    windows: WindowConfig
    answers: AnswerConfig
