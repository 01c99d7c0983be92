"""Small heads on all layers of any Hugging Face encoder.

Names are imported when they are first used, so that scoring, reporting and exported models need no torch. These are the
front door; all else is imported by its module's path, such as `from bertvision.encoder.load import load_encoder`.
"""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from bertvision.errors import needing_torch
from bertvision.version import VERSION

if TYPE_CHECKING:
    from bertvision.errors import BertVisionError as BertVisionError
    from bertvision.evaluate.analyze import analyze_folder as analyze
    from bertvision.evaluate.analyze import score_file as score
    from bertvision.evaluate.compare import compare_files as compare
    from bertvision.evaluate.ensemble import ensemble_folders as ensemble
    from bertvision.experiment import Experiment as Experiment
    from bertvision.experiment import build_experiment as build_experiment
    from bertvision.experiment import read_experiment as read_experiment
    from bertvision.records import RunRecord as RunRecord
    from bertvision.records import read_records as read_records
    from bertvision.report.page import write_report as write_report
    from bertvision.serving.calibrate_model import calibrate_model as calibrate
    from bertvision.serving.classifier import Classifier as Classifier
    from bertvision.serving.predict_file import predict_file as predict
    from bertvision.serving.predictor import load as load
    from bertvision.serving.reader import Reader as Reader
    from bertvision.serving.tagger import Tagger as Tagger
    from bertvision.serving.xray import xray as xray
    from bertvision.steps.encode import encode as encode
    from bertvision.steps.run import run as run
    from bertvision.training_result import TrainingResult as TrainingResult
    from bertvision.training_result import train as train

__all__ = [
    "BertVisionError",
    "Classifier",
    "Experiment",
    "Reader",
    "RunRecord",
    "Tagger",
    "TrainingResult",
    "analyze",
    "build_experiment",
    "calibrate",
    "compare",
    "encode",
    "ensemble",
    "load",
    "predict",
    "read_experiment",
    "read_records",
    "run",
    "score",
    "train",
    "write_report",
    "xray",
]
__version__ = VERSION
if find_spec("torch") is None:  # transformers, whose tokenizers work without it, would say so at every start
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

# Where each name comes from: a module, and what it is called there.
_PLACES = {
    "BertVisionError": ("errors", "BertVisionError"),
    "Classifier": ("serving.classifier", "Classifier"),
    "Experiment": ("experiment", "Experiment"),
    "Reader": ("serving.reader", "Reader"),
    "RunRecord": ("records", "RunRecord"),
    "Tagger": ("serving.tagger", "Tagger"),
    "TrainingResult": ("training_result", "TrainingResult"),
    "analyze": ("evaluate.analyze", "analyze_folder"),
    "build_experiment": ("experiment", "build_experiment"),
    "calibrate": ("serving.calibrate_model", "calibrate_model"),
    "compare": ("evaluate.compare", "compare_files"),
    "encode": ("steps.encode", "encode"),
    "ensemble": ("evaluate.ensemble", "ensemble_folders"),
    "load": ("serving.predictor", "load"),
    "predict": ("serving.predict_file", "predict_file"),
    "read_experiment": ("experiment", "read_experiment"),
    "read_records": ("records", "read_records"),
    "run": ("steps.run", "run"),
    "score": ("evaluate.analyze", "score_file"),
    "train": ("training_result", "train"),
    "write_report": ("report.page", "write_report"),
    "xray": ("serving.xray", "xray"),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 (any public name)
    if name not in _PLACES:
        raise AttributeError(f"module 'bertvision' has no attribute {name!r}")
    module, own_name = _PLACES[name]
    with needing_torch():
        return getattr(import_module(f"bertvision.{module}"), own_name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
