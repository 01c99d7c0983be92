"""Small heads on all layers of any Hugging Face encoder.

Names are imported when they are first used, so that scoring, reporting and exported models need no torch.
"""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from bertvision.errors import needing_torch
from bertvision.version import VERSION

if TYPE_CHECKING:
    from bertvision.data.example import GoldAnswer as GoldAnswer
    from bertvision.data.example import Question as Question
    from bertvision.data.squad import read_squad as read_squad
    from bertvision.data.squad import read_squad_rows as read_squad_rows
    from bertvision.encoder.encode import encode as encode
    from bertvision.encoder.encode import freeze as freeze
    from bertvision.encoder.finetune import FinetuneConfig as FinetuneConfig
    from bertvision.encoder.finetune import finetune_encoder as finetune_encoder
    from bertvision.encoder.load import Encoder as Encoder
    from bertvision.encoder.load import load_encoder as load_encoder
    from bertvision.encoder.tuning.adapter_file import load_adapters as load_adapters
    from bertvision.encoder.tuning.adapter_file import save_adapters as save_adapters
    from bertvision.encoder.tuning.adapter_file import save_plain as save_plain
    from bertvision.encoder.tuning.config import ParasiteConfig as ParasiteConfig
    from bertvision.encoder.tuning.config import TuneConfig as TuneConfig
    from bertvision.encoder.tuning.freezing import count_trainable as count_trainable
    from bertvision.encoder.tuning.freezing import first_above_bottom as first_above_bottom
    from bertvision.encoder.tuning.freezing import first_trained_block as first_trained_block
    from bertvision.encoder.tuning.freezing import quiet_bottom as quiet_bottom
    from bertvision.encoder.tuning.freezing import starting_at as starting_at
    from bertvision.encoder.tuning.freezing import state_entering as state_entering
    from bertvision.encoder.tuning.tune import Tuned as Tuned
    from bertvision.encoder.tuning.tune import start_tuning as start_tuning
    from bertvision.encoder.tuning.tune import tune as tune
    from bertvision.encoder.tuning.variants import merge_tuning as merge_tuning
    from bertvision.encoder.tuning.variants import remove_tuning as remove_tuning
    from bertvision.encoder.tuning.variants import set_active as set_active
    from bertvision.encoder.tuning.variants import train_active as train_active
    from bertvision.encoder.tuning.variants import trained_state as trained_state
    from bertvision.errors import BertVisionError as BertVisionError
    from bertvision.experiment import Experiment as Experiment
    from bertvision.experiment import build_experiment as build_experiment
    from bertvision.experiment import read_experiment as read_experiment
    from bertvision.heads.build import HeadConfig as HeadConfig
    from bertvision.heads.build import build_head as build_head
    from bertvision.heads.catalog import CATALOG as CATALOG
    from bertvision.heads.head import Head as Head
    from bertvision.heads.logits import row_logits as row_logits
    from bertvision.heads.logits import token_logits as token_logits
    from bertvision.heads.training import HeadsConfig as HeadsConfig
    from bertvision.heads.training import build_heads as build_heads
    from bertvision.heads.training import train_heads_together as train_heads_together
    from bertvision.metrics.squad import score_predictions as score_predictions
    from bertvision.metrics.squad import score_squad1 as score_squad1
    from bertvision.metrics.squad import score_squad2 as score_squad2
    from bertvision.model_folder import load_model as load_model
    from bertvision.predictions.ensemble import combine_logits as combine_logits
    from bertvision.predictions.logits import grid_of as grid_of
    from bertvision.predictions.prediction import AnswerConfig as AnswerConfig
    from bertvision.predictions.prediction import Prediction as Prediction
    from bertvision.predictions.spans import predict_spans as predict_spans
    from bertvision.records import RunRecord as RunRecord
    from bertvision.records import read_records as read_records
    from bertvision.serving.classifier import Classifier as Classifier
    from bertvision.serving.predictor import load as load
    from bertvision.serving.reader import Reader as Reader
    from bertvision.serving.tagger import Tagger as Tagger
    from bertvision.serving.xray import xray as xray
    from bertvision.states.live import LiveStates as LiveStates
    from bertvision.steps.predict_file import predict_file as predict_file
    from bertvision.steps.run import run as run
    from bertvision.studies.reports import write_report as write_report
    from bertvision.training.device import choose_compute as choose_compute
    from bertvision.training_result import TrainingResult as TrainingResult
    from bertvision.training_result import train as train
    from bertvision.windows.batches import BatchConfig as BatchConfig
    from bertvision.windows.window import Window as Window
    from bertvision.windows.window import WindowConfig as WindowConfig
    from bertvision.windows.window import cut_windows as cut_windows

if find_spec("torch") is None:  # transformers, whose tokenizers work without it, would say so at every start
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

__version__ = VERSION

_MODULES = {
    "states.live": ("LiveStates",),
    "encoder.encode": ("encode", "freeze"),
    "encoder.finetune": ("FinetuneConfig", "finetune_encoder"),
    "encoder.load": ("Encoder", "load_encoder"),
    "errors": ("BertVisionError",),
    "experiment": ("Experiment", "build_experiment", "read_experiment"),
    "windows.batches": ("BatchConfig",),
    "windows.window": ("Window", "WindowConfig", "cut_windows"),
    "heads.build": ("HeadConfig", "build_head"),
    "heads.catalog": ("CATALOG",),
    "heads.head": ("Head",),
    "heads.training": ("HeadsConfig", "build_heads", "train_heads_together"),
    "metrics.squad": ("score_predictions", "score_squad1", "score_squad2"),
    "predictions.ensemble": ("combine_logits",),
    "predictions.logits": ("grid_of",),
    "predictions.prediction": ("AnswerConfig", "Prediction"),
    "predictions.spans": ("predict_spans",),
    "records": ("RunRecord", "read_records"),
    "studies.reports": ("write_report",),
    "serving.classifier": ("Classifier",),
    "serving.predictor": ("load",),
    "serving.reader": ("Reader",),
    "serving.tagger": ("Tagger",),
    "serving.xray": ("xray",),
    "heads.logits": ("row_logits", "token_logits"),
    "model_folder": ("load_model",),
    "steps.predict_file": ("predict_file",),
    "steps.run": ("run",),
    "data.squad": ("read_squad", "read_squad_rows"),
    "data.example": ("GoldAnswer", "Question"),
    "training.device": ("choose_compute",),
    "training_result": ("TrainingResult", "train"),
    "encoder.tuning.adapter_file": ("load_adapters", "save_adapters", "save_plain"),
    "encoder.tuning.freezing": (
        "count_trainable",
        "first_above_bottom",
        "first_trained_block",
        "quiet_bottom",
        "starting_at",
        "state_entering",
    ),
    "encoder.tuning.config": ("ParasiteConfig", "TuneConfig"),
    "encoder.tuning.tune": ("Tuned", "start_tuning", "tune"),
    "encoder.tuning.variants": ("merge_tuning", "remove_tuning", "set_active", "train_active", "trained_state"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:  # noqa: ANN401 (any public name)
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'bertvision' has no attribute {name!r}")
    with needing_torch():
        return getattr(import_module(f"bertvision.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
